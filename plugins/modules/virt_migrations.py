#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many guests of one host are on other hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_migrations
short_description: Migrate many guests from one host
version_added: 0.1.0
description:
  - Does the same as M(corral.virt.virt_migrate) for many guests of one host, in one call, a few at the same time.
  - The module checks all options of all guests before it changes anything. After that, a guest that cannot be migrated
    does not stop the others.
  - During the migrations, one line per guest shows its progress. Ctrl-C aborts the running migrations, and no other
    migration starts.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
options:
  guests:
    description:
      - The guests, each with C(name), C(dest) and any other option of M(corral.virt.virt_migrate). Migrations start in
        this order; list the largest guests first.
    type: list
    elements: dict
    required: true
  options:
    description: Options of M(corral.virt.virt_migrate) for guests that do not set them.
    type: dict
    default: {}
  at_once:
    description:
      - Number of migrations at the same time. Two fill most links; more only make each of them slower.
    type: int
    default: 2
seealso:
  - module: corral.virt.virt_migrate
  - module: corral.virt.virt_place
"""

EXAMPLES = r"""
- name: Migrate guests from hyper1
  corral.virt.virt_migrations:
    guests:
      - {name: db1, dest: hyper2, schedule: suspend_if_needed}
      - {name: web1, dest: hyper3}
      - {name: web2, dest: hyper2}
    options: {bandwidth: 200}
  delegate_to: hyper1
"""

RETURN = r"""
results:
  description: One entry per guest, in the given order, as returned by M(corral.virt.virt_migrate); C(failed) and C(msg)
    for a guest that failed.
  returned: always
  type: list
  elements: dict
steps:
  description: Steps that were done for all guests, in order.
  returned: always
  type: list
  elements: str
"""

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._migration import run_migrate, run_migrations
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_concurrent_changes import check_begun
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migration_options import dest_uri
from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints
from ansible_collections.corral.virt.plugins.module_utils._system.detached import detach
from ansible_collections.corral.virt.plugins.module_utils._system.progress import ProgressWatch
from ansible_collections.corral.virt.plugins.module_utils._tls.run_connect import reached


def main() -> None:
    """Parameters in, many guests moved, results out."""
    module = Module(argument_spec={**URI_OPTION, **run_migrations.OPTIONS}, supports_check_mode=True)
    uri, gate = module.params["uri"], Gate(check_mode=module.check_mode)
    verified: set[tuple[t.Any, ...]] = set()  # the guests of one run often have the same base

    def move(params: run_migrations.MigrateParams, watch: ProgressWatch) -> dict[str, t.Any]:
        if interrupted := watch.interrupted():
            watch.interrupted.remove()
        check_begun(params["name"], interrupted=interrupted)
        with contextlib.ExitStack() as stack:
            ends = Endpoints(
                uri, dest_uri(params), lambda place: stack.enter_context(reached(place, watched=True)), verified
            )
            return run_migrate.converge(ends, params, gate, watch)

    with failures(module), contextlib.ExitStack() as stack:
        detach("virt_migrations")
        wanted = run_migrations.requested(module.params)
        # before there are threads: one loop watches the connections of all
        stack.enter_context(reached(uri, watched=True))
        # Of all of them, before the first moves: what is left there from now on is meant.
        watches = {one["name"]: ProgressWatch(one["name"]) for one in wanted}
        results = run_migrations.each(wanted, module.params["at_once"], lambda one: move(one, watches[one["name"]]))
    module.exit_json(**run_migrations.summary(results))


if __name__ == "__main__":
    main()
