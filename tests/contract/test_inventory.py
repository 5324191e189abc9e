"""The inventory plugin as users meet it: through ansible-inventory, against libvirt's own test driver."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.tools import payload

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGolden"
HOST = "<node>{}</node>"
GUEST = """
<domain type='test'><name>{name}</name><uuid>{uuid}</uuid>{title}<memory unit='MiB'>512</memory><vcpu>2</vcpu>
  <metadata><corral:guest xmlns:corral="urn:corral:virt:guest:1">{record}</corral:guest></metadata><os><type>hvm</type></os>
  <devices><interface type='bridge'><mac address='52:54:00:00:00:0{number}'/><source bridge='br0'/></interface></devices>{state}
</domain>"""
STATES = {"running": 1, "paused": 3, "shutdown": 5}


def guest(number: int, name: str, state: str = "running", record: t.Mapping[str, list[str]] | None = None, title: str = "") -> str:
    node = f'<test:runstate xmlns:test="http://libvirt.org/schemas/domain/test/1.0">{STATES[state]}</test:runstate>'
    uuid = f"00000000-0000-0000-0000-00000000000{number}"
    marks = "".join(f"<corral:{kind}>{value}</corral:{kind}>" for kind, values in (record or {}).items() for value in values)
    title = f"<title>{title}</title>" if title else ""
    return GUEST.format(number=number, name=name, uuid=uuid, title=title, record=marks, state=node)


class Inventory:
    """A directory of sources, and what Ansible makes of it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        (place.parent / "ansible.cfg").touch()  # the defaults, whoever runs the test
        self.stderr, self.seconds = "", 0.0

    def host(self, name: str, *guests: str) -> str:
        """The URI of a hypervisor with those guests."""
        path = self.place.parent / f"{name}.xml"
        path.write_text(HOST.format("".join(guests)))
        return f"test://{path}"

    def write(self, name: str, **content: t.Any) -> None:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))

    def ask(self, *words: str, program: str = "inventory", **environment: str) -> str:
        config = str(self.place.parent / "ansible.cfg")
        here = {"ANSIBLE_COLLECTIONS_PATH": str(payload.ROOT / ".cache"), "ANSIBLE_CONFIG": config, "ANSIBLE_NOCOLOR": "1"}
        command = [sys.executable, "-m", f"ansible.cli.{program}", "-i", str(self.place), *words]
        everything, started = {**os.environ, **here, **environment}, time.monotonic()
        done = subprocess.run(command, env=everything, capture_output=True, text=True, check=False, cwd=self.place.parent, timeout=60)
        self.seconds = time.monotonic() - started
        self.stderr = " ".join(done.stderr.split())  # Ansible breaks lines
        return done.stdout

    def list(self, **environment: str) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", json.loads(self.ask("--list", **environment)))

    def hosts(self, **environment: str) -> set[str]:
        return set(self.list(**environment)["_meta"]["hostvars"])


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    return Inventory(tmp_path / "my inventory")


@pytest.fixture
def two(inventory: Inventory) -> Inventory:
    """Two hypervisors from a source that is read before, and their guests."""
    record = {"tag": ["web", "on-line"], "address": ["10.0.0.5"], "ssh-host-key": [KEY]}
    first = inventory.host("first", guest(1, "web1", record=record, title="First"), guest(2, "twin", "shutdown"))
    second = inventory.host("second", guest(3, "twin"), guest(4, "slow", "paused"), guest(5, "hyper1", "shutdown"))
    inventory.write("hosts.yml", hyper={"hosts": {"hyper1": {"where": first}, "hyper2": {"where": second}}})
    inventory.write("virt.yml", plugin="corral.virt.virt", uri="{{ where }}")
    return inventory


@pytest.fixture
def silent() -> t.Iterator[int]:
    """A port that takes calls and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_guests_below_their_hypervisors(two: Inventory) -> None:
    known = two.list()
    groups = {"guests_running", "guests_paused", "guests_shutdown", "on_hyper1", "on_hyper2", "tag_web", "tag_on_line"}
    assert set(known["guests"]["children"]) == groups
    assert (known["on_hyper1"]["hosts"], known["on_hyper2"]["hosts"]) == (["web1"], ["slow", "twin"])
    assert (known["guests_running"]["hosts"], known["guests_paused"]["hosts"]) == (["twin", "web1"], ["slow"])
    assert known["tag_on_line"]["hosts"] == ["web1"]
    assert known["hyper"]["hosts"] == ["hyper1", "hyper2"]
    assert known["_meta"]["hostvars"]["hyper1"]["virt_reachable"] is True


def test_variables_are_plain(two: Inventory) -> None:
    """`--list` prints them as they are: AWX stores what it reads here."""
    known = two.list(HOME="/home/me")["_meta"]["hostvars"]["web1"]
    ssh = known.pop("ansible_ssh_common_args")
    assert ssh.startswith("-o 'UserKnownHostsFile=\"/home/me/.config/corral/known_hosts\"' -o 'HostKeyAlias=\"web1\"'")
    assert known == {
        "ansible_host": "10.0.0.5",
        "virt_addresses": ["10.0.0.5"],
        "virt_hypervisor": "hyper1",
        "virt_macs": ["52:54:00:00:00:01"],
        "virt_memory_mib": 512,
        "virt_state": "running",
        "virt_tags": ["web", "on-line"],
        "virt_title": "First",
        "virt_uuid": "00000000-0000-0000-0000-000000000001",
        "virt_vcpus": 2,
    }


def test_what_is_odd_is_said(two: Inventory) -> None:
    """Guests that are there twice; a guest that would take a hypervisor's place."""
    assert "where" in two.list()["_meta"]["hostvars"]["hyper1"]
    assert "guest twin is on hyper2 (running) and hyper1 (shutdown); shown is the one on hyper2" in two.stderr
    assert "guest hyper1 on hyper2 is not shown" in two.stderr
    assert "libvirt:" not in two.stderr  # its own printing


@pytest.mark.parametrize("name", ["localhost", "hyper", "all", "{{ 1 }}"])
def test_names_that_mean_something_else(inventory: Inventory, name: str) -> None:
    inventory.write("hosts.yml", hyper={"hosts": {"h1": None}})
    uri = inventory.host("first", guest(1, name), guest(2, "good"))
    inventory.write("virt.yml", plugin="corral.virt.virt", hypervisors={"h1": uri})
    assert inventory.list()["guests_running"]["hosts"] == ["good"]
    assert "is not shown" in inventory.stderr


def test_nothing_from_outside_is_executed(inventory: Inventory) -> None:
    trap = inventory.place.parent / "executed"
    text = f"{{{{ lookup('pipe', 'touch {trap}') }}}}"
    inventory.write("virt.yml", plugin="corral.virt.virt", hypervisors={"h1": inventory.host("h1", guest(1, "evil", title=text))})
    assert inventory.list()["_meta"]["hostvars"]["evil"]["virt_title"] == {"__ansible_unsafe": text}
    shown = inventory.ask("evil", "-c", "local", "-m", "ansible.builtin.debug", "-a", "var=virt_title", program="adhoc")
    assert "lookup" in shown and not trap.exists()


def test_constructed(two: Inventory) -> None:
    two.write(
        "virt.yml",
        plugin="corral.virt.virt",
        uri="{{ where }}",
        compose={"ansible_user": "'debian'", "label": "inventory_hostname ~ '-' ~ virt_title"},
        groups={"small": "virt_memory_mib < 1024"},
        keyed_groups=[{"key": "virt_vcpus | string", "prefix": "vcpus"}],
        filters=["virt_state != 'paused'"],
        strict=True,
    )
    known = two.list()
    assert known["small"]["hosts"] == known["vcpus_2"]["hosts"] == ["twin", "web1"]
    assert known["_meta"]["hostvars"]["web1"]["label"] == "web1-First"
    assert known["_meta"]["hostvars"]["web1"]["ansible_user"] == "debian"
    assert "slow" not in known["_meta"]["hostvars"]


def test_cache(two: Inventory) -> None:
    cache = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": str(two.place.parent / "cache")}
    two.write("virt.yml", plugin="corral.virt.virt", uri="{{ where }}", **cache)
    first = two.list()
    two.host("first", guest(1, "other"))
    assert two.list() == first
    two.ask("--list", "--flush-cache")
    assert "other" in two.hosts() and "web1" not in two.hosts()


def test_what_was_silent_is_not_kept_so(two: Inventory) -> None:
    cache = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": str(two.place.parent / "cache")}
    two.write("virt.yml", plugin="corral.virt.virt", uri="{{ where }}", **cache)
    document = two.place.parent / "second.xml"
    text = document.read_text()
    document.unlink()
    assert "slow" not in two.hosts()
    document.write_text(text)
    assert "slow" in two.hosts()


def test_files_beside_the_inventory_count(two: Inventory) -> None:
    """The URI and the place of host keys come from group_vars; ssh arguments of the inventory are kept, after ours."""
    two.write("group_vars/hyper/main.yml", guests_known_hosts="/my keys/{{ who }}", who="me")
    two.write("group_vars/all.yml", ansible_ssh_common_args="-o ProxyJump={{ bastion }}", bastion="jump")
    shown = two.ask("web1", "-c", "local", "-m", "ansible.builtin.debug", "-a", "var=ansible_ssh_common_args", program="adhoc")
    arguments = json.loads(shown.partition("=>")[2])["ansible_ssh_common_args"]
    assert arguments.startswith("-o 'UserKnownHostsFile=\"/my keys/me\"' ") and arguments.endswith(" -o ProxyJump=jump")


def test_configured_ssh_arguments_are_kept(two: Inventory) -> None:
    known = two.list(ANSIBLE_SSH_COMMON_ARGS="-o ProxyJump=jump")["_meta"]["hostvars"]["web1"]
    assert known["ansible_ssh_common_args"].endswith(" -o StrictHostKeyChecking=yes -o ProxyJump=jump")


def test_dead_hypervisors_hold_up_nobody(two: Inventory, silent: int) -> None:
    """One hangs in libvirt's own code, one refuses, one has no certificate to go there with."""
    two.write(
        "virt.yml",
        plugin="corral.virt.virt",
        timeout=1,
        hypervisors={
            "good": f"test://{two.place.parent}/first.xml",
            "hung": f"qemu+tcp://127.0.0.1:{silent}/system",
            "bare1": "qemu+tls://10.0.0.1/system?pkipath={{ virt_pki_dir }}",
            "bare2": "qemu+tls://10.0.0.2/system?pkipath={{ virt_pki_dir }}",
        },
        pki_dir=f"{two.place.parent}/my ca",
    )
    known = two.list()["_meta"]["hostvars"]
    assert two.seconds < 10
    assert [known[name]["virt_reachable"] for name in ("good", "hung", "bare1", "bare2")] == [True, False, False, False]
    assert "web1" in known
    assert "guests on hung are not shown: no answer within 1 s" in two.stderr
    assert f"guests on bare1, bare2 are not shown: this controller has no certificate in {two.place.parent}/my ca yet" in two.stderr
    # The thread left behind neither keeps Ansible from forking nor from ending.
    here = f"ansible_python_interpreter={sys.executable}"
    assert "pong" in two.ask("web1", "-c", "local", "-e", here, "-m", "ansible.builtin.ping", program="adhoc")
    assert two.seconds < 10
    two.ask("--list", CORRAL_VIRT_STRICT_HOSTS="true", ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED="true")
    assert "Completely failed to parse inventory source" in two.stderr


def test_without_hypervisors(inventory: Inventory) -> None:
    inventory.write("virt.yml", plugin="corral.virt.virt")
    inventory.list()
    assert "group hyper is empty" in inventory.stderr


def test_without_libvirt(two: Inventory) -> None:
    """One error that says what to install."""
    hidden = two.place.parent / "hidden"
    hidden.mkdir()
    (hidden / "libvirt.py").write_text("raise ImportError('not here')\n")
    two.ask("--list", PYTHONPATH=str(hidden))
    assert "pip install libvirt-python lxml" in two.stderr


def test_short_name(two: Inventory) -> None:
    """As the checkout's ansible.cfg makes it possible."""
    two.write("virt.yml", plugin="virt", uri="{{ where }}")
    assert "web1" in two.hosts(ANSIBLE_INVENTORY_PLUGINS=str(payload.ROOT / "plugins/inventory"))


@pytest.mark.parametrize("options", [{"prefer": ["ipv5"]}, {"filters": ["no_such_thing"]}])
def test_wrong_options(two: Inventory, options: dict[str, t.Any]) -> None:
    two.write("virt.yml", plugin="corral.virt.virt", uri="{{ where }}", **options)
    two.ask("--list")
    assert f"{next(iter(options))}:" in two.stderr
