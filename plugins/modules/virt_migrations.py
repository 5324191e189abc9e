#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many guests of one host are on other hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_migrations
short_description: Many guests leave a host
version_added: 0.1.0
description:
  - The same as M(corral.virt.virt_migrate) for many guests of one host, in one call, a few of them at once.
  - All options of all guests are checked before anything is touched. After that, a guest that cannot move does not stop
    the others.
  - While they move, a line for each says how far it is. Ctrl-C ends the migrations that are under way, and begins no
    other.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
options:
  guests:
    description:
      - The guests, each with C(name), C(dest) and whatever else M(corral.virt.virt_migrate) takes. They begin in this
        order; put the biggest first.
    type: list
    elements: dict
    required: true
  options:
    description: Options of M(corral.virt.virt_migrate) for guests that do not say otherwise.
    type: dict
    default: {}
  at_once:
    description:
      - Migrations at a time. Two fill most links; more of them only make each take longer.
    type: int
    default: 2
seealso:
  - module: corral.virt.virt_migrate
  - module: corral.virt.virt_place
"""

EXAMPLES = r"""
- name: They leave hyper1
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
  description: One entry per guest, in the order given, as M(corral.virt.virt_migrate) returns it; C(failed) and C(msg)
    for one that failed.
  returned: always
  type: list
  elements: dict
steps:
  description: What was done to all guests, in order.
  returned: always
  type: list
  elements: str
"""

import contextlib

from ansible_collections.corral.virt.plugins.module_utils._files.detached import detach
from ansible_collections.corral.virt.plugins.module_utils._files.progress import Watch
from ansible_collections.corral.virt.plugins.module_utils._front import migrate, migrations
from ansible_collections.corral.virt.plugins.module_utils._front.ends import Ends
from ansible_collections.corral.virt.plugins.module_utils._front.module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._front.reach import reached
from ansible_collections.corral.virt.plugins.module_utils._plan.meanwhile import check_begun
from ansible_collections.corral.virt.plugins.module_utils._plan.migrate_options import dest_uri
from ansible_collections.corral.virt.plugins.module_utils._run import Gate


def main() -> None:
    """Parameters in, many guests moved, results out."""
    module = Module(argument_spec={**URI_OPTION, **migrations.OPTIONS}, supports_check_mode=True)
    uri, gate = module.params["uri"], Gate(check_mode=module.check_mode)

    def move(wish: migrations.Wish, watch: Watch) -> migrations.Wish:
        if interrupted := watch.interrupted():
            watch.interrupted.remove()
        check_begun(wish["name"], interrupted=interrupted)
        with contextlib.ExitStack() as stack:
            ends = Ends(uri, dest_uri(wish), lambda place: stack.enter_context(reached(place, watched=True)))
            return migrate.converge(ends, wish, gate, watch)

    with failures(module), contextlib.ExitStack() as stack:
        detach("virt_migrations")
        wanted = migrations.wishes(module.params)
        # before there are threads: one loop watches the connections of all
        stack.enter_context(reached(uri, watched=True))
        # Of all of them, before the first moves: what is left there from now on is meant.
        watches = {wish["name"]: Watch(wish["name"]) for wish in wanted}
        results = migrations.each(wanted, module.params["at_once"], lambda wish: move(wish, watches[wish["name"]]))
    module.exit_json(**migrations.summary(results))


if __name__ == "__main__":
    main()
