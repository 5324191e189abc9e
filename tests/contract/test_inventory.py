"""The inventory plugin as users meet it: through ansible-inventory, against libvirt's own test driver."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.contract.certificates import Authority, write_directory
from ansible_collections.corral.virt.tests.contract.play import defaults
from ansible_collections.corral.virt.tests.contract.tls_server import served, tls
from ansible_collections.corral.virt.tests.tools import payload, preloaded

pytestmark = pytest.mark.slow

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGolden"
HOST = "<node>{}</node>"
GUEST = """
<domain type='test'><name>{name}</name><uuid>{uuid}</uuid>{title}<memory unit='MiB'>512</memory><vcpu>2</vcpu>
  <metadata><corral:guest xmlns:corral="urn:corral:virt:guest:1">{record}</corral:guest></metadata><os><type>hvm</type></os>
  <devices><interface type='bridge'><mac address='52:54:00:00:00:0{number}'/><source bridge='br0'/></interface></devices>{state}
</domain>"""
PATIENCE_S = 30  # even a loaded machine has asked its hypervisors by then; one that hangs would hold it up for ever
STATES = {"running": 1, "paused": 3, "shutdown": 5}


def guest(
    number: int, name: str, state: str = "running", record: t.Mapping[str, list[str]] | None = None, title: str = ""
) -> str:
    node = f'<test:runstate xmlns:test="http://libvirt.org/schemas/domain/test/1.0">{STATES[state]}</test:runstate>'
    uuid = f"00000000-0000-0000-0000-00000000000{number}"
    marks = "".join(
        f"<corral:login user='{value}'/>" if kind == "login" else f"<corral:{kind}>{value}</corral:{kind}>"
        for kind, values in (record or {}).items()
        for value in values
    )
    title = f"<title>{title}</title>" if title else ""
    return GUEST.format(number=number, name=name, uuid=uuid, title=title, record=marks, state=node)


class Inventory:
    """A directory of sources, and what Ansible makes of it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
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

    def ask(self, *words: str, program: str = "ansible-inventory", **environment: str) -> str:
        command, started = [program, "-i", str(self.place), *words], time.monotonic()
        done = preloaded.run(command, cwd=self.place.parent, env=defaults(**environment), timeout_s=60, given=None)
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


def test_a_guest_is_entered_as_its_image_lets_in_unless_the_inventory_says_otherwise(inventory: Inventory) -> None:
    """A hypervisor may report any text."""
    users = {"web1": "debian", "web2": "ubuntu", "web3": "debian", "evil": "-oProxyCommand=x", "own": "debian"}
    guests = [guest(n, name, record={"login": [user]}) for n, (name, user) in enumerate(users.items())]
    inventory.write("virt.yml", plugin="corral.virt.virt", hypervisors={"h1": inventory.host("h1", *guests)})
    inventory.write("hosts.yml", all={"vars": {"ansible_user": "root"}})
    inventory.write("host_vars/own.yml", ansible_user="me")

    def entered(*names: str) -> list[str]:
        return [json.loads(inventory.ask("--host", name))["ansible_user"] for name in names]

    assert entered(*users, "h1") == ["debian", "ubuntu", "debian", "root", "me", "root"]
    assert inventory.list()["guests_login_debian"]["hosts"] == ["own", "web1", "web3"]
    inventory.write(
        "another.virt.yml",
        plugin="corral.virt.virt",
        hypervisors={"h2": inventory.host("h2", guest(7, "web7", record={"login": ["debian"]}))},
    )
    assert entered("web7", "web1") == ["debian", "debian"]
    inventory.write("hosts.yml", guests={"vars": {"ansible_user": "admin"}})
    assert entered("web1", "own") == ["admin", "me"]
    inventory.write("group_vars/guests.yml", ansible_user="ops")
    assert entered("web1", "own") == ["ops", "me"]


def test_variables_are_plain(two: Inventory) -> None:
    """`--list` prints them as they are: AWX stores what it reads here."""
    known = two.list(HOME="/home/me")["_meta"]["hostvars"]["web1"]
    ssh = known.pop("ansible_ssh_common_args")
    assert ssh.startswith("-o 'UserKnownHostsFile=\"/home/me/.config/corral/known_hosts\"' -o 'HostKeyAlias=\"web1\"'")
    assert known == {
        "ansible_host": "10.0.0.5",
        "ansible_ssh_host_key_checking": True,
        "virt_addresses": ["10.0.0.5"],
        "virt_hypervisor": "hyper1",
        "virt_macs": ["52:54:00:00:00:01"],
        "virt_memory_mib": 512,
        "virt_name": "web1",
        "virt_state": "running",
        "virt_tags": ["web", "on-line"],
        "virt_title": "First",
        "virt_uuid": "00000000-0000-0000-0000-000000000001",
        "virt_vcpus": 2,
    }


def test_what_is_odd_is_said(two: Inventory) -> None:
    """Guests that are there twice; a guest that would take a hypervisor's place."""
    assert "where" in two.list()["_meta"]["hostvars"]["hyper1"]
    assert "guest twin is on hyper2 (running) and hyper1 (shutdown); the one on hyper2 is shown" in two.stderr
    assert "guest hyper1 on hyper2 is not shown" in two.stderr
    assert "libvirt:" not in two.stderr  # its own printing


def test_names_that_mean_something_else(inventory: Inventory) -> None:
    names = ["localhost", "hyper", "all", "guests_running", "on_h1"]
    inventory.write("hosts.yml", hyper={"hosts": {"h1": None}})
    uri = inventory.host("first", *(guest(number, name) for number, name in enumerate([*names, "good"])))
    inventory.write("virt.yml", plugin="corral.virt.virt", hypervisors={"h1": uri})
    assert inventory.list()["guests_running"]["hosts"] == ["good"]
    assert [name for name in names if f"guest {name} on h1 is not shown" not in inventory.stderr] == []


def test_nothing_from_outside_is_executed(inventory: Inventory) -> None:
    trap = inventory.place.parent / "executed"
    text = f"{{{{ lookup('pipe', 'touch {trap}') }}}}"
    inventory.write(
        "virt.yml", plugin="corral.virt.virt", hypervisors={"h1": inventory.host("h1", guest(1, "evil", title=text))}
    )
    assert inventory.list()["_meta"]["hostvars"]["evil"]["virt_title"] == {"__ansible_unsafe": text}
    shown = inventory.ask(
        "evil", "-c", "local", "-m", "ansible.builtin.debug", "-a", "var=virt_title", program="ansible"
    )
    assert "lookup" in shown and not trap.exists()


def test_constructed(two: Inventory) -> None:
    two.write(
        "virt.yml",
        plugin="corral.virt.virt",
        uri="{{ where }}",
        compose={"ansible_user": "'debian'", "label": "inventory_hostname ~ '-' ~ virt_title"},
        groups={"small": "virt_memory_mib < 1024"},
        keyed_groups=[{"key": "virt_vcpus", "prefix": "vcpus"}],
        filters=["virt_state != 'paused'"],
        strict=True,
    )
    known = two.list()
    assert known["small"]["hosts"] == known["vcpus_2"]["hosts"] == ["twin", "web1"]
    assert known["_meta"]["hostvars"]["web1"]["label"] == "web1-First"
    assert known["_meta"]["hostvars"]["web1"]["ansible_user"] == "debian"
    assert "slow" not in known["_meta"]["hostvars"]


def test_no_guest_makes_itself_a_hypervisor(inventory: Inventory) -> None:
    """By what it says of itself, where that names groups."""
    inventory.write("hosts.yml", site={"children": {"hyper": {"hosts": {"h1": None}, "children": {"new": None}}}})
    guests = [
        guest(number, f"evil{number}", title=title) for number, title in enumerate(["hyper", "new", "site", "web"], 1)
    ]
    keys = [{"key": "virt_title", "prefix": "", "separator": ""}]
    inventory.write(
        "virt.yml", plugin="corral.virt.virt", hypervisors={"h1": inventory.host("h1", *guests)}, keyed_groups=keys
    )
    known = inventory.list()
    assert (
        known["hyper"] == {"children": ["new"], "hosts": ["h1"]} and "new" not in known and "hosts" not in known["site"]
    )
    assert known["web"]["hosts"] == ["evil4"]
    assert "guest evil1 is not put into hyper by keyed_groups" in inventory.stderr


def test_all_guests_of_many_full_hypervisors_are_shown(inventory: Inventory) -> None:
    """What is read of them is read after the deadline."""
    for number in range(8):
        guests = [
            guest(1, f"g{number}-{index}").replace("-0000-000000000001", f"-{number:04}-{index:012}")
            for index in range(100)
        ]
        inventory.host(f"h{number}", *guests)
    uris = {f"h{number}": f"test://{inventory.place.parent}/h{number}.xml" for number in range(8)}
    inventory.write("virt.yml", plugin="corral.virt.virt", hypervisors=uris, timeout=1.5)
    assert len(inventory.list()["guests_running"]["hosts"]) == 800


def test_a_guest_named_as_an_option_of_ssh_runs_nothing_here(inventory: Inventory) -> None:
    trap, name = inventory.place.parent / "PWNED", "-oProxyCommand=touch PWNED; echo "
    inventory.write(
        "virt.yml",
        plugin="corral.virt.virt",
        hypervisors={"h1": inventory.host("h1", guest(1, name), guest(2, "Windows 10"))},
    )
    inventory.ask("guests", "-c", "ssh", "-T", "1", "-m", "ansible.builtin.raw", "-a", "true", program="ansible")
    assert not trap.exists()
    known = inventory.list()["_meta"]["hostvars"]
    assert {known[host].get("virt_name") for host in known} - {None} == {name, "Windows 10"}


def test_composed_addresses_are_judged_too(inventory: Inventory) -> None:
    trap, titles = inventory.place.parent / "PWNED", ["-oProxyCommand=touch PWNED", "192.0.2.9", "10.0.0.9"]
    uri = inventory.host("h1", *(guest(number, f"g{number}", title=title) for number, title in enumerate(titles)))
    inventory.write("hosts.yml", firewalls={"hosts": {"firewall": {"ansible_host": "192.0.2.9"}}})
    inventory.write(
        "virt.yml",
        plugin="corral.virt.virt",
        hypervisors={"h1": uri},
        compose={"ansible_host": "virt_title"},
        addresses=["record"],
    )
    known = inventory.list()["_meta"]["hostvars"]
    assert [known[f"g{number}"].get("ansible_host") for number in range(3)] == [None, None, "10.0.0.9"]
    assert "g1 on h1 has no ansible_host: compose sets it to 192.0.2.9, which belongs to firewall" in inventory.stderr
    assert not trap.exists()


@pytest.mark.parametrize("source", ["hosts.yml", "web.yml", "web"])  # before, after, and after as INI
def test_no_guest_takes_the_place_of_another_host(inventory: Inventory, source: str) -> None:
    record = {"address": ["10.0.0.5"], "ssh-host-key": [KEY]}
    uri = inventory.host(
        "h1", guest(1, "firewall", record=record), guest(2, "ROUTER"), guest(3, "hv.example.com"), guest(4, "web1")
    )
    inventory.write("virt.yml", plugin="corral.virt.virt", hypervisors={"h1": uri}, addresses=["record"])
    if source.endswith(".yml"):
        hosts = {
            "firewall": {"ansible_become_password": "secret"},
            "router": None,
            "hv1": {"ansible_host": "hv.example.com"},
        }
        inventory.write(source, net={"hosts": hosts})
    else:
        (inventory.place / source).write_text(
            "[net]\nfirewall ansible_become_password=secret\nrouter\n[net:vars]\na=b\n"
        )
    known = inventory.list()
    assert known["_meta"]["hostvars"]["firewall"].get("virt_uuid") is None
    assert "ansible_host" not in known["_meta"]["hostvars"]["firewall"]
    shown = {"web1"} if source.endswith(".yml") else {"hv.example.com", "web1"}
    assert set(known["guests_running"]["hosts"]) == shown
    assert (
        "guest firewall on h1 is not shown: another host of this inventory has this name; rename the guest, or put "
        "that host into" in inventory.stderr
    )


def test_later_sources_that_nobody_can_read_ahead_are_named(inventory: Inventory) -> None:
    inventory.write("virt.yml", plugin="corral.virt.virt", hypervisors={"h1": inventory.host("h1", guest(1, "web1"))})
    inventory.write(
        "zz_constructed.yml", plugin="ansible.builtin.constructed", groups={"web": "inventory_hostname == 'web1'"}
    )
    assert inventory.list()["web"]["hosts"] == ["web1"]
    assert "is read after" not in inventory.stderr
    script = inventory.place / "zz_script"
    script.write_text("#!/bin/sh\necho '{}'\n")
    script.chmod(0o755)
    inventory.list()
    assert "zz_script is read after" in inventory.stderr and "zz_constructed" not in inventory.stderr


@pytest.mark.parametrize("source", ["hosts.yml", "web.yml"])
def test_a_guest_that_the_inventory_lists_keeps_what_is_said_of_it(inventory: Inventory, source: str) -> None:
    # Also where another host has that address: whoever wrote it down knows why, as with a gateway that forwards.
    listed = {"web1": {"ansible_host": "10.9.9.9", "ansible_user": "me"}}
    inventory.write(source, guests={"hosts": listed}, gateways={"hosts": {"gateway": {"ansible_host": "10.9.9.9"}}})
    uri = inventory.host("h1", guest(1, "web1", record={"address": ["10.0.0.5"]}))
    inventory.write("virt.yml", plugin="corral.virt.virt", hypervisors={"h1": uri})
    known = inventory.list()["_meta"]["hostvars"]["web1"]
    assert (known["ansible_host"], known["ansible_user"], known["virt_state"]) == ("10.9.9.9", "me", "running")


def test_of_two_clouds_the_later_one_replaces_no_guest(inventory: Inventory) -> None:
    inventory.write(
        "a_virt.yml",
        plugin="corral.virt.virt",
        hypervisors={"h1": inventory.host("h1", guest(1, "web1", title="first"))},
    )
    inventory.write(
        "b_virt.yml",
        plugin="corral.virt.virt",
        hypervisors={"h2": inventory.host("h2", guest(2, "web1", title="second"))},
    )
    known = inventory.list()
    assert known["_meta"]["hostvars"]["web1"]["virt_title"] == "first"
    assert "on_h2" not in known
    assert (
        "guest web1 on h2 is not shown: a source that was read earlier has a guest with this name, on h1"
        in inventory.stderr
    )


def test_no_guest_is_reached_at_an_address_of_this_inventory(inventory: Inventory) -> None:
    """Of the hypervisor, of a host whose address stands in its group, and of the hypervisor that does not answer."""
    claims = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "10.0.0.4"]
    uri = inventory.host(
        "h1", *(guest(number, f"g{number}", record={"address": [claim]}) for number, claim in enumerate(claims, 1))
    )
    inventory.write("group_vars/net.yml", ansible_host="{{ where }}", where="192.0.2.2")
    hypervisors = {
        "h1": {"ansible_host": "192.0.2.1", "uri": uri},
        "h2": {"ansible_host": "192.0.2.3", "uri": "test:///nowhere.xml"},
    }
    inventory.write("hosts.yml", hyper={"hosts": hypervisors}, net={"hosts": {"firewall": None}})
    inventory.write("virt.yml", plugin="corral.virt.virt", uri="{{ uri }}")
    known = inventory.list()["_meta"]["hostvars"]
    assert [known[f"g{number}"].get("ansible_host") for number in range(1, 5)] == [None, None, None, "10.0.0.4"]
    for address, owner in zip(claims, ["h1", "firewall", "h2"], strict=False):
        assert f"{address}, claimed by " in inventory.stderr and f"belongs to {owner}" in inventory.stderr


def test_control_characters_reach_no_terminal(inventory: Inventory) -> None:
    """C1 may stand in names and titles; in what a hypervisor answers may stand anything."""
    bad = guest(1, "a\x9b31m", title="b\x9b5m", record={"tag": ["c\x9b"]})
    inventory.write(
        "virt.yml",
        plugin="corral.virt.virt",
        hypervisors={"h1": inventory.host("h1", bad, guest(2, "hyper\u202e")), "h2": "test:///no\x1b[31m.xml"},
    )
    printed = inventory.ask("--list") + inventory.ask("--graph") + inventory.stderr
    assert "a\\\\x9b31m" in printed
    assert not [char for char in printed if not char.isprintable() and char != "\n"]


def test_cache(two: Inventory) -> None:
    two.write("virt.yml", plugin="corral.virt.virt", uri="{{ where }}", **cached(two))
    first = two.list()
    two.host("first", guest(1, "other"))
    assert two.list() == first
    two.ask("--list", "--flush-cache")
    assert "other" in two.hosts() and "web1" not in two.hosts()


def test_what_was_silent_is_not_kept_so(two: Inventory) -> None:
    two.write("virt.yml", plugin="corral.virt.virt", uri="{{ where }}", **cached(two))
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
    shown = two.ask(
        "web1", "-c", "local", "-m", "ansible.builtin.debug", "-a", "var=ansible_ssh_common_args", program="ansible"
    )
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
        timeout=3,
        hypervisors={
            "good": f"test://{two.place.parent}/first.xml",
            "hung": f"qemu+tcp://127.0.0.1:{silent}/system",
            "bare1": "qemu+tls://10.0.0.1/system?pkipath={{ virt_pki_dir }}",
            "bare2": "qemu+tls://10.0.0.2/system?pkipath={{ virt_pki_dir }}",
        },
        pki_dir=f"{two.place.parent}/my ca",
    )
    known = two.list()["_meta"]["hostvars"]
    assert two.seconds < PATIENCE_S
    assert [known[name]["virt_reachable"] for name in ("good", "hung", "bare1", "bare2")] == [True, False, False, False]
    assert "web1" in known
    assert two.stderr.count("did not answer") == 1 and "3 of 4 hypervisors did not answer; " in two.stderr
    assert "guests on hung are not shown: no answer within 3 s" in two.stderr
    assert (
        f"guests on bare1, bare2 are not shown: this machine has no {two.place.parent}/my ca/cacert.pem yet"
        in two.stderr
    )
    # The thread left behind neither keeps Ansible from forking nor from ending.
    here = f"ansible_python_interpreter={sys.executable}"
    assert "pong" in two.ask("web1", "-c", "local", "-e", here, "-m", "ansible.builtin.ping", program="ansible")
    assert two.seconds < PATIENCE_S
    two.ask("--list", CORRAL_VIRT_STRICT_HOSTS="true", ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED="true")
    assert "Completely failed to parse inventory source" in two.stderr
    assert "3 of 4 hypervisors did not answer; " in two.stderr


def test_before_the_first_run_a_line_tells_what_makes_the_certificates(inventory: Inventory) -> None:
    """It is no warning about hypervisors: none was asked."""
    bare = "qemu+tls://10.0.0.1/system?pkipath={{ virt_pki_dir }}"
    where = f"{inventory.place.parent}/none"
    inventory.write("virt.yml", plugin="corral.virt.virt", hypervisors={"h1": bare, "h2": bare}, pki_dir=where)
    inventory.list()
    told = f"No guests are shown: this machine has no {where}/cacert.pem yet; the role corral.virt.pki creates it"
    assert told in inventory.stderr and "WARNING" not in inventory.stderr and "did not answer" not in inventory.stderr
    inventory.ask("--list", CORRAL_VIRT_STRICT_HOSTS="true", ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED="true")
    assert "2 of 2 hypervisors did not answer; " in inventory.stderr, "where that is to be a failure"


def test_ten_of_a_hundred_hypervisors_are_dead(inventory: Inventory, silent: int) -> None:
    """They refuse, say nothing, or are not what they should be; they cost one timeout together, and one warning."""
    alive = {f"h{n:02d}": inventory.host(f"h{n:02d}", guest(1, f"web{n:02d}")) for n in range(90)}
    with socket.create_server(("127.0.0.1", 0)) as closed:
        refusing = closed.getsockname()[1]
    dead = {f"mute{n}": f"qemu+tcp://127.0.0.1:{silent}/system" for n in range(4)}
    dead |= {f"off{n}": f"qemu+tcp://127.0.0.1:{refusing}/system" for n in range(3)}
    dead |= {f"lost{n}": "test:///not/there.xml" for n in range(3)}
    inventory.write("virt.yml", plugin="corral.virt.virt", timeout=3, hypervisors={**alive, **dead})
    known = inventory.list()
    assert len(known["guests_running"]["hosts"]) == 90 and inventory.seconds < PATIENCE_S
    assert inventory.stderr.count("did not answer") == 1
    assert (
        "10 of 100 hypervisors did not answer; guests on mute0, mute1, mute2, mute3 are not shown: " in inventory.stderr
    )
    assert f"guests on off0, off1, off2 are not shown: port {refusing}: Connection refused" in inventory.stderr
    assert "guests on lost0, lost1, lost2 are not shown: " in inventory.stderr


@pytest.fixture
def dropping() -> t.Iterator[int]:
    """A port whose queue is full: what knocks there is dropped, as behind a firewall."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _number in range(4):
            knocking = stack.enter_context(socket.socket())
            knocking.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                knocking.connect(server.getsockname())
        yield server.getsockname()[1]


def test_hypervisors_behind_a_firewall_and_of_another_authority(two: Inventory, dropping: int, tmp_path: Path) -> None:
    """Each costs no more than its timeout, and is told with its reason."""
    ours, others = Authority("our CA"), Authority("other CA")
    client = write_directory(tmp_path / "client", "client", ours, ours.issue("controller"))
    names = ("127.0.0.1", "localhost")
    server = write_directory(tmp_path / "server", "server", others, others.issue("hyper9", *names))
    with served(tls(server)) as port:
        two.write(
            "virt.yml",
            plugin="corral.virt.virt",
            timeout=4,
            hypervisors={
                "good": f"test://{tmp_path}/first.xml",
                "dropped": f"qemu+tcp://127.0.0.1:{dropping}/system",
                "foreign": f"qemu+tls://127.0.0.1:{port}/system?pkipath={client}",
            },
        )
        known = two.list()["_meta"]["hostvars"]
    assert two.seconds < PATIENCE_S and "web1" in known
    assert [known[name]["virt_reachable"] for name in ("good", "dropped", "foreign")] == [True, False, False]
    assert f"guests on dropped are not shown: port {dropping} does not answer" in two.stderr
    assert "certificate for O=cloud,CN=hyper9 from another authority" in two.stderr


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


def cached(inventory: Inventory, **more: t.Any) -> dict[str, t.Any]:
    place = str(inventory.place.parent / "cache")
    return {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": place, **more}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prefer": ["ipv5"]}, "prefer:"),
        ({"filters": ["no_such_thing"]}, "filters:"),
        ({"exclude_filters": ["no_such_thing"]}, "exclude_filters: cannot be evaluated for guest"),
        ({"hostnames": ["no_such_thing"], "strict": True}, "hostnames: no_such_thing cannot be evaluated for guest"),
        (
            {"filter": ["x"], "colour": 1},
            "filter is not an option of this plugin; did you mean filters?; colour is not an option of this plugin",
        ),
        ({"hostvars_prefix": "my-"}, "hostvars_prefix must begin"),
    ],
)
def test_wrong_options(two: Inventory, options: dict[str, t.Any], words: str) -> None:
    two.write("virt.yml", plugin="corral.virt.virt", uri="{{ where }}", **options)
    two.ask("--list")
    assert words in two.stderr and "web1" not in two.stderr.partition("Failed to parse")[0]


def test_equal_names_on_two_hypervisors_both_show(two: Inventory) -> None:
    names = ["no_such_thing", "virt_name ~ '.' ~ virt_hypervisor if virt_name == 'twin'"]
    two.write("virt.yml", plugin="corral.virt.virt", uri="{{ where }}", hostnames=names)
    known = two.list()
    assert {"twin.hyper1", "twin.hyper2", "web1", "slow"} <= set(known["_meta"]["hostvars"])
    assert (known["on_hyper1"]["hosts"], known["on_hyper2"]["hosts"]) == (
        ["twin.hyper1", "web1"],
        ["slow", "twin.hyper2"],
    )
    assert "guest twin" not in two.stderr


def test_a_guest_with_a_name_of_the_operator_is_verified_under_its_own(two: Inventory) -> None:
    """A name that means something to ssh or Ansible stays an alias."""
    names = ["'-oProxyCommand=x' if virt_name == 'slow' else 'shop'"]
    two.write(
        "virt.yml",
        plugin="corral.virt.virt",
        uri="{{ where }}",
        hostnames=names,
        filters=["virt_name in ('web1', 'slow')"],
    )
    known = two.list()["_meta"]["hostvars"]
    assert 'HostKeyAlias="web1"' in known["shop"]["ansible_ssh_common_args"]
    assert [name for name in known if name.startswith("alias_-oProxyCommand_x_")]


def test_guests_that_are_left_out(two: Inventory) -> None:
    two.write(
        "virt.yml",
        plugin="corral.virt.virt",
        uri="{{ where }}",
        exclude_filters=["virt_state == 'paused'", "'web' in virt_tags"],
    )
    assert two.hosts() == {"hyper1", "hyper2", "twin"}


def test_prefix_of_variables(two: Inventory) -> None:
    two.write("virt.yml", plugin="corral.virt.virt", uri="{{ where }}", hostvars_prefix="kvm_")
    known = two.list()["_meta"]["hostvars"]["web1"]
    assert (known["kvm_state"], known["virt_name"], known["virt_hypervisor"]) == ("running", "web1", "hyper1")
    assert {name for name in known if name.startswith("virt_")} == {"virt_hypervisor", "virt_name", "virt_uuid"}


def test_hypervisors_alone(two: Inventory) -> None:
    """Nobody is asked: nothing needs to be there."""
    where = {"hyper8": "qemu+tls://192.0.2.1/system", "hyper9": "qemu+tls://192.0.2.2/system"}
    two.write("virt.yml", plugin="corral.virt.virt", hypervisors=where, hypervisors_only=True, ca_file="/not/there")
    known = two.list()
    assert set(known["_meta"]["hostvars"]) <= {"hyper1", "hyper2"} and "guests" not in known
    assert known["hyper"]["hosts"] == ["hyper1", "hyper2", "hyper8", "hyper9"]
    assert not two.stderr


def test_names_that_make_one_group_are_said(inventory: Inventory) -> None:
    first, second = inventory.host("a", guest(1, "web1", record={"tag": ["on-line"]})), inventory.host("b")
    inventory.write("virt.yml", plugin="corral.virt.virt", hypervisors={"C-1": first, "C_1": second})
    assert inventory.list()["on_C_1"]["hosts"] == ["web1"]
    assert "on_C_1 and on_C-1 are one group, on_C_1" in inventory.stderr and "on_line" not in inventory.stderr


def test_last_known_guests_of_a_dead_hypervisor(two: Inventory) -> None:
    """They are marked; one that another hypervisor has now has moved, and is no stale guest."""
    two.write("virt.yml", plugin="corral.virt.virt", uri="{{ where }}", **cached(two, cache_timeout=1, show_stale=True))
    assert "guests_stale" not in two.list()
    (two.place.parent / "second.xml").unlink()
    two.host("first", guest(1, "web1"), guest(3, "twin"))
    time.sleep(1.5)
    known = two.list()
    slow = known["_meta"]["hostvars"]["slow"]
    assert (slow["virt_stale"], slow["virt_state"], slow["virt_hypervisor"]) == (True, "paused", "hyper2")
    assert (known["guests_stale"]["hosts"], known["on_hyper2"]["hosts"]) == (["slow"], ["slow"])
    assert "guests_paused" not in known or not known["guests_paused"].get("hosts")
    assert known["_meta"]["hostvars"]["twin"]["virt_hypervisor"] == "hyper1"
    assert known["_meta"]["hostvars"]["hyper2"]["virt_reachable"] is False
    assert "1 of 2 hypervisors did not answer; guests on hyper2 are shown as last known: " in two.stderr
    assert "guest twin" not in two.stderr


def test_ways_through_the_hypervisor(two: Inventory) -> None:
    """Guests behind their hypervisors may have the same address on each of them."""
    two.host("first", guest(1, "web1", record={"address": ["10.0.0.5"], "ssh-host-key": [KEY]}))
    two.host("second", guest(2, "web2", record={"address": ["10.0.0.5"]}))
    two.write("virt.yml", plugin="corral.virt.virt", uri="{{ where }}", connection="jump")
    two.write("host_vars/hyper1.yml", ansible_user="root", ansible_host="fd00::1", ansible_port=2222)
    known = two.list()["_meta"]["hostvars"]
    assert [known[name]["ansible_host"] for name in ("web1", "web2")] == ["10.0.0.5", "10.0.0.5"]
    assert known["web1"]["ansible_ssh_common_args"].endswith(
        "-o StrictHostKeyChecking=yes -o 'ProxyJump=root@[fd00::1]:2222'"
    )
    assert known["web2"]["ansible_ssh_common_args"] == "-o ProxyJump=hyper2"
    assert "ansible_ssh_host_key_checking" not in known["web2"]
    paths = [known[name]["ansible_control_path"] % {"directory": "cp"} for name in ("web1", "web2")]
    assert paths[0] != paths[1], "Ansible's own path is that of an address"
    for path in paths:
        assert re.fullmatch("cp/[0-9a-f]{16}-%p-%r", path), "another user is another connection"


def test_way_through_the_agent(two: Inventory) -> None:
    two.write("virt.yml", plugin="corral.virt.virt", uri="{{ where }}", connection="agent")
    known = two.list()["_meta"]["hostvars"]["web1"]
    assert (known["ansible_connection"], known["ansible_host"]) == ("community.libvirt.libvirt_qemu", "web1")
    assert known["ansible_libvirt_uri"].startswith("test:///") and "ansible_ssh_common_args" not in known
