"""Run on a host of the lab: a front of the collection, which stops before the steps that it is told, until it is told
to go on.

Nothing else than this program passes a `meanwhile` to the gate. It is given one line of JSON: `front`, its `params`, and
`at`, the name of a step's class and which of these steps (`RemoveDisk 1`). It prints a line of JSON before that step,
and one at the end; it goes on for each line that it is given, or when nobody will give any more.
"""

from __future__ import annotations

import collections
import json
import sys
import typing as t

sys.path.insert(0, sys.argv[1])  # where the collection is

from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate

_NUMBERS: dict[str, int] = collections.Counter()


def _say(**fields: t.Any) -> None:
    print(json.dumps(fields), flush=True)


def _meanwhile(at: str) -> t.Callable[[object], None]:
    def wait(step: object) -> None:
        name = type(step).__name__
        _NUMBERS[name] += 1
        if f"{name} {_NUMBERS[name]}" == at:
            _say(reached=str(step))
            sys.stdin.readline()

    return wait


def _defaults(options: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {**{key: option.get("default") for key, option in options.items()}, **given}


def _migrate(params: t.Mapping[str, t.Any], gate: Gate) -> t.Any:
    from ansible_collections.corral.virt.plugins.module_utils._migration import run_migrate, run_migration_options
    from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migration_options import dest_uri
    from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints
    from ansible_collections.corral.virt.plugins.module_utils._system.progress import ProgressWatch
    from ansible_collections.corral.virt.plugins.module_utils._tls.run_connect import reached

    params = _defaults(run_migration_options.OPTIONS, params)
    import contextlib

    with contextlib.ExitStack() as stack:
        ends = Endpoints(
            "qemu:///system", dest_uri(params), lambda uri: stack.enter_context(reached(uri, watched=True))
        )
        return run_migrate.converge(ends, params, gate, ProgressWatch(params["name"]))


def _guest(params: t.Mapping[str, t.Any], gate: Gate) -> t.Any:
    from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest, run_guest_options
    from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened

    wanted = run_guest_options.wanted(
        _defaults({**run_guest_options.NAMING, **run_guest_options.GUEST_OPTIONS}, params)
    )
    with opened("qemu:///system", events=True) as connection:
        return run_guest.converge(connection, wanted, gate)


def _image(params: t.Mapping[str, t.Any], gate: Gate) -> t.Any:
    from ansible_collections.corral.virt.plugins.module_utils._image import run_image
    from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
    from ansible_collections.corral.virt.plugins.module_utils._tls.run_connect import reached

    with opened("qemu:///system") as connection:
        world = run_image.World(lambda location, _headers: _unread(location), lambda uri: reached(uri, watched=True))
        return run_image.converge(connection, _defaults(run_image.OPTIONS, params), gate, world)


def _unread(location: str) -> t.Any:
    raise VirtError(f"nothing is fetched here: {location}")


def _noun(kind: str) -> t.Callable[[t.Mapping[str, t.Any], Gate], t.Any]:
    def front(params: t.Mapping[str, t.Any], gate: Gate) -> t.Any:
        from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
        from ansible_collections.corral.virt.plugins.module_utils._network import libvirt_network_edit
        from ansible_collections.corral.virt.plugins.module_utils._network.plan_network import NETWORK
        from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun, run_noun_options
        from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_pool
        from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool import POOL

        what, api = {"network": (NETWORK, libvirt_network_edit.API), "pool": (POOL, libvirt_pool.API)}[kind]
        with opened("qemu:///system") as connection:
            return run_noun.converge(
                connection, what, api, _defaults(run_noun_options.argument_spec(what.schema), params), gate
            )

    return front


_FRONTS = {"migrate": _migrate, "guest": _guest, "image": _image, "network": _noun("network"), "pool": _noun("pool")}


def main() -> None:
    """One run."""
    told = json.loads(sys.stdin.readline())
    gate = Gate(check_mode=False, meanwhile=_meanwhile(told["at"]))
    try:
        _say(result=_FRONTS[told["front"]](told["params"], gate))
    except VirtError as error:
        _say(failed=str(error))


if __name__ == "__main__":
    main()
