"""Others act between plan and act on what is no migration: images, networks, pools, definitions, seeds.

As in `adversary.py`: a run stops before a named step, somebody acts with virsh or qemu-img, the run goes on. What they
did is there afterwards, the run says it, and the same run ends well when they have settled it.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
import uuid as uuids

from ansible_collections.corral.virt.tests.faults.adversary import Between, install
from ansible_collections.corral.virt.tests.faults.foreign import definition
from ansible_collections.corral.virt.tests.faults.hosts import Host
from ansible_collections.corral.virt.tests.faults.scene import Violation
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES

__all__ = ["OBJECTS", "ObjectAct", "tried"]

_NAME, _OTHER, _SOURCE = "spare", "of-others", "/srv/spare.qcow2"
_OVERLAY = f"{IMAGES}/{_OTHER}.qcow2"
_SEED = f"{IMAGES}/{_NAME}-seed.iso"


@dataclasses.dataclass(frozen=True)
class ObjectAct:
    """What somebody does before a step; `shown` is a command whose output says that it is there."""

    name: str
    front: str
    made: t.Mapping[str, t.Any]  # the object, before the run
    params: t.Mapping[str, t.Any]  # of the run
    at: str
    acts: str
    shown: str
    settles: str
    says: str


def _over(content: str) -> str:
    """A disk that stands on that file, and a guest that has it."""
    xml = definition(_OTHER, _OVERLAY).replace('"raw"', '"qcow2"').replace("\n", " ")
    return (
        f"qemu-img create -q -f qcow2 -F qcow2 -b {content} {_OVERLAY} && virsh -q pool-refresh default && "
        f"echo '{xml}' | virsh -q define /dev/stdin"
    )


def _cdrom(path: str) -> str:
    xml = definition(_OTHER, path).replace("\n", " ").replace('device="disk"', 'device="cdrom"').replace("vda", "sda")
    return f"echo '{xml.replace('virtio', 'sata')}' | virsh -q define /dev/stdin"


def _redefined(kind: str, pattern: str, text: str) -> str:
    """Its owner edits the stored definition."""
    dump = {"dom": "dumpxml --inactive", "net": "net-dumpxml --inactive", "pool": "pool-dumpxml --inactive"}[kind]
    define = {"dom": "define", "net": "net-define", "pool": "pool-define"}[kind]
    return f"virsh {dump} {_NAME} | sed 's|{pattern}|{text}|' > /srv/edited.xml && virsh -q {define} /srv/edited.xml"


_ANOTHER = definition(_NAME, f"{IMAGES}/{_OTHER}.raw", str(uuids.UUID(int=0x0BADC0DE))).replace("\n", " ")
_REPLACED = f"virsh -q undefine {_NAME} && echo '{_ANOTHER}' | virsh -q define /dev/stdin"
_CONTENT = f"$(readlink -f {IMAGES}/{_NAME}.qcow2)"
_UNUSED = f"virsh -q undefine {_OTHER}; rm -f {_OVERLAY}; virsh -q pool-refresh default"
_AWAY = f"virsh -q undefine {_NAME}; rm {IMAGES}/{_NAME}-*; virsh -q pool-refresh default"
_GUEST = {
    "name": _NAME,
    "state": "shutdown",
    "memory": "64MiB",
    "vcpus": 1,
    "interfaces": [],
    "disks": [{"name": "system", "size": "16MiB"}],
}
_SEEDED = {**_GUEST, "cloud_init": {"on_change": "next_boot", "user_data": {"hostname": "one"}}}
_NETWORK = {"name": _NAME, "mode": "isolated", "bridge": "spare0", "state": "inactive"}
_POOL = {"name": _NAME, "path": "/srv/spare-pool", "state": "inactive"}
_IMAGE = {"name": f"{_NAME}.qcow2", "src": _SOURCE, "remote_src": True}
_EDITED = "somebody has changed its definition|changed"

OBJECTS = (
    ObjectAct("an overlay before an image is removed", "image", _IMAGE, {"name": f"{_NAME}.qcow2", "state": "absent"},
              "Remove 1", _over(_CONTENT), f"qemu-img info -U --backing-chain {_OVERLAY}", _UNUSED, "use"),
    *(
        ObjectAct(f"a network's definition edited before it is {verb}", "network", _NETWORK, params, at,
                  _redefined("net", "</uuid>", r"</uuid><domain name=\"theirs\"/>"),
                  f"virsh net-dumpxml {_NAME} | grep theirs", "true", _EDITED)
        for verb, at, params in (
            ("replaced", "Define 1", {**_NETWORK, "bridge": "spare1"}),
            ("removed", "Undefine 1", {"name": _NAME, "state": "absent"}),
        )
    ),
    ObjectAct("a pool's definition edited before it is removed", "pool", _POOL, {"name": _NAME, "state": "absent"},
              "Undefine 1", _redefined("pool", "/srv/spare-pool", "/srv/of-others"),
              f"virsh pool-dumpxml {_NAME} | grep of-others", "true", _EDITED),
    ObjectAct("a guest's definition edited before it is replaced", "guest", _GUEST, {**_GUEST, "memory": "96MiB"},
              "Define 1", _redefined("dom", "</devices>", '<watchdog model=\\"i6300esb\\"/></devices>'),
              f"virsh dumpxml {_NAME} | grep i6300esb", "true", _EDITED),
    *(
        ObjectAct(f"another guest under its name before it is {verb}", "guest", _GUEST, params, at, _REPLACED,
                  f"virsh domuuid {_NAME} | grep -i badc0de", _AWAY, "removed since")
        for verb, at, params in (
            ("replaced", "Define 1", {**_GUEST, "memory": "96MiB"}),
            ("removed", "Undefine 1", {"name": _NAME, "state": "absent", "remove_storage": True}),
        )
    ),
    ObjectAct("a guest that reads the seed before it is written anew", "guest", _SEEDED,
              {**_SEEDED, "cloud_init": {"on_change": "next_boot", "user_data": {"hostname": "two"}}}, "WriteSeed 1", _cdrom(_SEED),
              f"grep -aE 'hostname.*one' {_SEED}", _UNUSED,
              "use"),
)  # fmt: skip


def tried(act: ObjectAct, host: Host) -> str:
    """What came of it, in words; raises Violation."""
    install(host)
    host.run(f"qemu-img create -q -f qcow2 {_SOURCE} 16M; mkdir -p /srv/spare-pool")
    try:
        made = Between(host, act.front, "", act.made)
        if not made.end():
            raise RuntimeError(f"it was not made: {made.failed}")
        return _acted(act, host)
    finally:
        _swept(host)


def _acted(act: ObjectAct, host: Host) -> str:
    run = Between(host, act.front, act.at, act.params)
    if not run.reached():
        raise Violation(f"it never came to {act.at}: {run.failed or run.result}")
    host.run(act.acts)
    run.go()
    if run.end():
        raise Violation(f"it ended well over {act.name}: {run.result}")
    if not re.search(act.says, run.failed):
        raise Violation(f"it did not say '{act.says}': {run.failed}")
    if not host.run(act.shown, ok=False):
        raise Violation(f"what somebody else did is gone: {run.failed}")
    host.run(act.settles)
    again = Between(host, act.front, "", act.params)
    if not again.end():
        raise Violation(f"settled, and run again, it failed: {again.failed} (first: {run.failed})")
    return run.failed[:300]


def _swept(host: Host) -> None:
    """Nothing of it is left."""
    host.run(
        f"virsh -q undefine {_OTHER}; virsh -q undefine {_NAME}; virsh -q net-destroy {_NAME}; virsh -q net-undefine "
        f"{_NAME}; virsh -q pool-destroy {_NAME}; virsh -q pool-undefine {_NAME}; "
        f"rm -rf {_SOURCE} {_OVERLAY} {IMAGES}/{_NAME}[.-]* {IMAGES}/.spare* {IMAGES}/.corral /srv/spare-pool "
        "/srv/of-others /srv/edited.xml; virsh -q pool-refresh default",
        ok=False,
    )
