"""A guest does not move to a host where it cannot start: all that its definition names is asked for there."""

from __future__ import annotations

import contextlib
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._migration import run_copy_offline, run_migrate
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage, run_directories
from ansible_collections.corral.virt.plugins.module_utils._system.progress import ProgressWatch
from ansible_collections.corral.virt.tests.contract.two_hosts import Host, converge, ends, options

MOVES = Path(__file__).with_name("cold_moves")
HOOK = "/etc/libvirt/hooks/qemu.d/50-corral"
FIRMWARE = "/usr/share/qemu/firmware/60-edk2.json"
LOADER = ["/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"]
KERNEL = ["/srv/vmlinuz", "/srv/initrd", "/srv/logs", "/srv/data", "/usr/share/qemu/vhost-user/50-virtiofsd.json"]


@pytest.fixture
def files(hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """What both hosts have, by path; the test driver has no directories."""
    known: dict[int, dict[str, bytes]] = {id(one): {HOOK: b"", "/usr/bin/qemu-system-x86_64": b""} for one in hosts}
    for one in hosts:
        monkeypatch.setattr(one, "getHostname", lambda: "hyper2", raising=False)

    @contextlib.contextmanager
    def pool_for(connection: t.Any, directory: str) -> t.Iterator[str]:
        if not any(path.startswith(f"{directory}/") for path in known[id(connection)]):
            raise NotFound(directory)
        yield directory

    def below(connection: t.Any, pool: str) -> list[str]:
        paths = [path for path in known[id(connection)] if path.startswith(f"{pool}/")]
        return sorted({path[len(pool) + 1 :].split("/")[0] for path in paths})

    def volume_in(connection: t.Any, pool: str, name: str) -> str | None:
        content = known[id(connection)].get(f"{pool}/{name}")
        return None if content is None else f"<volume><physical>{len(content)}</physical></volume>"

    monkeypatch.setattr(run_directories, "pool_for", pool_for)
    monkeypatch.setattr(libvirt_storage, "names", below, raising=False)
    monkeypatch.setattr(libvirt_storage, "volume_in", volume_in)
    monkeypatch.setattr(libvirt_storage, "read", lambda connection, pool, name: known[id(connection)][f"{pool}/{name}"])
    return known[id(hosts[0])], known[id(hosts[1])]


def defined(host: Host, name: str) -> str:
    """A guest that is off, as the test driver can have it."""
    xml = (MOVES / f"{name}.xml").read_text().replace('type="qemu"', 'type="test"').replace('x86_64"', 'i686"')
    domain = host.connection.defineXML(xml.replace(' machine="pc-q35-7.2"', ""))
    return str(domain.name())


def where(hosts: tuple[Host, Host], name: str) -> list[str]:
    """Who has it."""
    known = dict(zip(("source", "dest"), hosts, strict=True))
    return [end for end, host in known.items() if name in [one.name() for one in host.connection.listAllDomains()]]


Files = tuple[dict[str, bytes], dict[str, bytes]]


@pytest.mark.parametrize("case", ["loader", "kernel"])
def test_a_guest_that_is_off_stays_where_it_can_start(hosts: tuple[Host, Host], files: Files, case: str) -> None:
    """Firmware, kernel, log directory, shared directory: each that is missing there is named, at once."""
    name, needs = defined(hosts[0], case), {"loader": LOADER, "kernel": KERNEL}[case]
    for check_mode in (True, False):
        refused = converge(*hosts, check_mode=check_mode, name=name)
        assert refused.startswith(f"cannot migrate {name} to hyper2: ")
        assert all(f"{path} does not exist on hyper2" in refused for path in needs[:2]), refused
        assert ("hyper2 has no virtiofsd; install package virtiofsd" in refused) == (case == "kernel")
        assert ("directory /srv/logs, for logs" in refused and "/srv/data does not" in refused) == (case == "kernel")
    assert where(hosts, name) == ["source"]
    files[1].update(dict.fromkeys([*needs, "/srv/logs/other", "/srv/data/other"], b""))
    assert converge(*hosts, name=name) == ""
    assert where(hosts, name) == ["dest"]


def test_variables_that_are_copied_need_no_template_there(
    hosts: tuple[Host, Host], files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = defined(hosts[0], "loader")
    files[1][LOADER[0]] = b""
    assert f"{LOADER[1]} does not exist on hyper2" in converge(*hosts, name=name)
    monkeypatch.setattr(run_copy_offline, "files", lambda _found: ["/var/lib/libvirt/qemu/nvram/c2m.fd"])
    assert converge(*hosts, check_mode=True, name=name) == ""


def test_a_hook_may_set_up_what_is_missing(hosts: tuple[Host, Host], files: Files) -> None:
    """Nobody knows then; that is told."""
    name = defined(hosts[0], "loader")
    files[1]["/etc/libvirt/hooks/qemu"] = b""
    told = run_migrate.converge(ends(*hosts), options(name=name), Gate(check_mode=False), ProgressWatch(name))
    assert [note for note in told["notes"] if "a hook of libvirt on hyper2 may set up files" in note]
    assert where(hosts, name) == ["dest"]


def described(paths: list[str], features: tuple[str, ...] = ()) -> bytes:
    """A firmware's descriptor."""
    code, variables = ({"filename": path, "format": "raw"} for path in paths)
    mapping = {"device": "flash", "executable": code, "nvram-template": variables}
    targets = [{"architecture": "i686", "machines": ["*"]}]
    return json.dumps(
        {"interface-types": ["uefi"], "mapping": mapping, "targets": targets, "features": features, "tags": []}
    ).encode()


ELSEWHERE = ["/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"]


@pytest.mark.parametrize(
    ("sizes", "features", "found"),
    [
        ((8, 4), ("acpi-s3",), True),
        ((8, 5), (), False),
        ((9, 4), (), False),
        ((8, 4), ("secure-boot",), False),
    ],
)
def test_firmware_of_another_path_is_found_where_the_variables_fit(
    hosts: tuple[Host, Host], files: Files, sizes: tuple[int, int], features: tuple[str, ...], *, found: bool
) -> None:
    name = defined(hosts[0], "loader")
    files[0].update({LOADER[0]: bytes(8), LOADER[1]: bytes(4), FIRMWARE: described(LOADER)})
    there = {path: bytes(size) for path, size in zip(ELSEWHERE, sizes, strict=True)}
    files[1].update({**there, "/etc/qemu/firmware/10-own.json": described(ELSEWHERE, features), FIRMWARE: b"broken"})
    refused = converge(*hosts, name=name)
    assert (refused == "") == found
    assert where(hosts, name) == (["dest"] if found else ["source"])
    if found:
        xml = hosts[1].connection.lookupByName(name).XMLDesc()
        assert f">{ELSEWHERE[0]}</loader>" in xml and f"template='{ELSEWHERE[1]}'" in xml
        assert LOADER[0] not in xml and "/var/lib/libvirt/qemu/nvram/c2m.fd</nvram>" in xml
