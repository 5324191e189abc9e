"""The prerequisites of a guest, and how a start is refused that it would refuse on each run."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._files import missing
from ansible_collections.corral.virt.plugins.module_utils._model.prerequisites import Missing, Prerequisites
from ansible_collections.corral.virt.plugins.module_utils._plan import power_steps, start
from ansible_collections.corral.virt.plugins.module_utils._xml.prerequisites import prerequisites

GUEST = """<domain><os><kernel>/k</kernel><initrd>/i</initrd><loader>/l</loader><nvram template='/t'>/v</nvram></os>
<metadata><x:disk xmlns:x='urn:x'><source file='/not/a/disk'/></x:disk></metadata><devices>
<disk><source file='/a'/><backingStore><source file='/below'/></backingStore></disk>
<disk><source dev='/dev/b'/></disk><disk><source pool='p' volume='n'/></disk><disk device='cdrom'/>
<disk><source file='/maybe' startupPolicy='optional'/></disk><disk type='network'><source protocol='rbd'/></disk>
<filesystem><source dir='/d'/></filesystem><memory model='nvdimm'><source><path>/dimm</path></source></memory>
<interface type='network'><source network='lan'/><virtualport type='openvswitch'/></interface>
<interface type='bridge'><source bridge='br0'/></interface><interface type='direct'><source dev='eth7'/></interface>
<interface type='bridge'><source bridge='ovs0'/><virtualport type='openvswitch'/></interface>
<interface type='hostdev'><rom file='/rom'/></interface></devices></domain>"""


def test_prerequisites_of_a_guest() -> None:
    assert prerequisites(GUEST) == Prerequisites(
        networks=frozenset({"lan"}),
        links=frozenset({"br0", "eth7"}),
        files=frozenset({"/k", "/i", "/l", "/a", "/dev/b", "/d", "/rom"}),
        volumes=frozenset({("p", "n")}),
        templates={"/t": "/v"},
    )


def test_needs_of_a_device() -> None:
    assert prerequisites("<disk><source file='/a'/></disk>") == Prerequisites(files=frozenset({"/a"}))
    assert prerequisites("<interface type='network'><source network='n'/></interface>").networks == {"n"}
    assert prerequisites("<graphics type='vnc'/>") == Prerequisites()


@pytest.mark.parametrize(
    ("nvram", "variables"),
    [
        ("<nvram template='/t'/>", ""),
        ("<nvram template='/t'>/v</nvram>", "/v"),
        ("<nvram template='/t' type='file'><source file='/w'/></nvram>", "/w"),
    ],
)
def test_where_variables_are(nvram: str, variables: str) -> None:
    assert prerequisites(f"<domain><os>{nvram}</os></domain>").templates == {"/t": variables}


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        (Missing(networks={"a lan": True}), "network a lan is not active; start it .* `virsh net-start 'a lan'`"),
        (Missing(networks={"lan": False}), "this host has no network lan; create the network with virt_network"),
        (Missing(links=frozenset({"br9"})), "this host has no network device br9; create the bridge with role"),
        (Missing(paths=frozenset({"/a"})), "/a does not exist; put it there"),
        (Missing(paths=frozenset({"/t", "/v"})), "/t does not exist; put it there"),
        (Missing(volumes={("p", "n"): "gone"}), r"volume n of pool p is not found \(gone\); create .*pool-refresh p`"),
        (
            Missing(networks={"l": True}, paths=frozenset({"/a", "/dev/b"})),
            "network l is not active, and /a does not exist, and /dev/b does not exist; start it .*; put it there.*",
        ),
    ],
)
def test_all_that_is_missing_is_told(missing: Missing, text: str) -> None:
    with pytest.raises(NotFound, match=f"^cannot start web1: {text}"):
        start.check("start", "web1", prerequisites(GUEST), missing)


def test_a_disk_that_an_interrupted_run_was_making() -> None:
    missing = Missing(paths=frozenset({"/a.making"}))
    with pytest.raises(NotFound, match="an interrupted run left /a incomplete; list its disks again"):
        start.check("start", "web1", Prerequisites(files=missing.paths), missing)


def test_variables_that_are_there_need_no_template() -> None:
    start.check("start", "web1", prerequisites(GUEST), Missing(paths=frozenset({"/t"})))
    start.check("start", "web1", prerequisites(GUEST), Missing(paths=frozenset({"/v"})))


def test_what_is_made_before_is_not_needed() -> None:
    both = [Prerequisites(files=frozenset({"/a", "/b"})), Prerequisites(networks=frozenset({"n"}))]
    assert start.combined(both, made=["/a"]) == Prerequisites(files=frozenset({"/b"}), networks=frozenset({"n"}))


def test_only_a_start_is_looked_at() -> None:
    missing = Missing(paths=frozenset({"/a"}))
    start.check_steps("web1", [power_steps.Resume("web1")], lambda: pytest.fail("asked"))
    with pytest.raises(NotFound, match="/a does not exist"):
        start.check_steps(
            "web1", [power_steps.Start("web1")], lambda: (Prerequisites(files=frozenset({"/a"})), missing)
        )


def test_what_is_missing(tmp_path: Path) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    there.touch()
    link.symlink_to(tmp_path / "nowhere")
    paths = [str(there), str(link), f"{there}/below", f"{tmp_path}/gone", "relative"]
    assert missing.missing_paths(paths) == set(paths[1:4])
    assert missing.missing_links(["lo", "no-such-link"]) == {"no-such-link"}


def test_a_network_device_may_have_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def index(name: str) -> int:
        if name != "enp3s0":
            raise OSError("no interface with this name")
        return 2

    monkeypatch.setattr(socket, "if_nametoindex", index)
    assert missing.missing_links(["enp3s0", "no-such-link"]) == {"no-such-link"}
