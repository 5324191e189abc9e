"""Every group of options against real QEMU: check, do, check again, do again; the judge is virsh, never our own
modules.

All groups go together: a guest for each, converged in one call. First the definitions, which QEMU then has to start;
then guests that run while they are changed.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import shlex
import subprocess
import sys
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from lxml import etree

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    HERE,
    IMAGES,
    Hypervisors,
    guide,
    hypervisors,
)

pytestmark = pytest.mark.lab

LAB = Hypervisors("hardware")
on = functools.partial(LAB.on, "hyper1")
PACKAGES = "ovmf swtpm swtpm-tools qemu-system-gui"


# What others put into a definition, and nobody may lose.
QEMU = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"
NOTE = "virsh metadata {} --uri http://example.org/other --key other --set '<note>kept &amp; unread</note>' --config"
ARGUMENTS = "<qemu:commandline><qemu:arg value='-name'/><qemu:arg value='debug-threads=on'/></qemu:commandline>"


@dataclasses.dataclass(frozen=True)
class Group:
    """What is said of a guest that exists, and what virsh must show then: a row of hardware.yml."""

    said: dict[str, t.Any]
    shows: dict[str, str]  # XPath below <domain> -> the text or attribute there; "" for nothing
    made: dict[str, t.Any] = dataclasses.field(default_factory=dict)  # what the guest is made with beyond the least
    starts: bool = True  # whether the lab's hosts can run it


GROUPS = yaml.safe_load(Path(__file__).with_name("hardware.yml").read_text())
OFFLINE = {name: Group(**row) for name, row in GROUPS["offline"].items()}
LIVE = {name: Group(**row) for name, row in GROUPS["live"].items()}
LEAST = {"vcpus": 1, "memory": "64MiB", "disks": [], "interfaces": []}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of one cycle, by guest."""

    checked: dict[str, dict[str, t.Any]]
    done: dict[str, dict[str, t.Any]]
    checked_again: dict[str, dict[str, t.Any]]
    done_again: dict[str, dict[str, t.Any]]
    before: dict[str, t.Any]
    predicted: dict[str, t.Any]  # documents after the first check
    after: dict[str, t.Any]


def play_and_tell(*tasks: dict[str, t.Any], check: bool = False) -> dict[str, t.Any]:
    """Run tasks on the hypervisor; what they registered as `told`."""
    return t.cast("dict[str, t.Any]", LAB.tell(*tasks, hosts="hyper1", check=check)["hyper1"])


def converge(domains: list[dict[str, t.Any]], *, check: bool = False) -> dict[str, dict[str, t.Any]]:
    """One call for all guests; the results by guest."""
    task = {"corral.virt.virt_domains": {"domains": domains}, "register": "told", "ignore_errors": True}
    result = play_and_tell(task, check=check)
    assert "results" in result, result
    return {one["name"]: one for one in t.cast("list[dict[str, t.Any]]", result["results"])}


def documents(*options: str) -> dict[str, t.Any]:
    """What virsh says of every guest."""
    names = on("virsh list --all --name").split()
    text = on("; ".join(f"virsh dumpxml {name} {' '.join(options)}" for name in names))
    found = etree.fromstring(f"<all>{re.sub(r'<[?].*?[?]>', '', text)}</all>")
    return {str(one.findtext("name")): one for one in found}


def shown(document: t.Any, path: str) -> str:
    """The text at an XPath; empty when there is nothing."""
    found = document.xpath(path)
    if isinstance(found, float):
        return str(int(found))
    first = found[0] if found else ""
    return str(first) if not hasattr(first, "text") else first.text or ""


def survivors(document: t.Any) -> set[str]:
    """What an edit must not touch: addresses and MACs of devices by alias or kind, and what is not ours."""
    paths = ("//mac", "//*[local-name()='arg']", "//*[local-name()='note']", "//controller[@type='pci']//*")
    found = [one for path in paths for one in document.xpath(f".{path}")]
    return {
        etree.canonicalize(etree.tostring(one, with_tail=False, encoding="unicode"), strip_text=True) for one in found
    }


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """One host, set up by the collection's own roles, with what only these tests need."""
    with hypervisors("hardware"):
        on(f"DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends {PACKAGES} >/dev/null")
        on(
            f"cd {IMAGES} && truncate -s 1M medium.iso shared.img && head -c 64 /dev/zero >kernel && virsh "
            "pool-refresh default"
        )
        yield


@pytest.fixture(scope="module")
def offline() -> Outcome:
    return cycle(OFFLINE, "present", "--inactive", "--security-info")


@pytest.fixture(scope="module")
def running(offline: Outcome) -> Outcome:
    on("for guest in $(virsh list --name); do virsh destroy $guest; done")
    return cycle(LIVE, "running", "--security-info")


def cycle(groups: dict[str, Group], state: str, *dump: str) -> Outcome:
    """Make a guest for each group, then check, do, check, do what the group says."""
    made = converge([{"name": name, **LEAST, **group.made} for name, group in groups.items()])
    assert not [one["msg"] for one in made.values() if one.get("failed")]
    for name in groups:  # what others put there
        edits = [f"1s|<domain |<domain {QEMU} |", f"s|</domain>|{ARGUMENTS}</domain>|"]
        sed = shlex.join(["sed", "-i", *(part for edit in edits for part in ("-e", edit)), f"/tmp/{name}.xml"])
        store = f"virsh dumpxml {name} --inactive --security-info >/tmp/{name}.xml"
        on(f"{store} && {sed} && virsh define /tmp/{name}.xml && {NOTE.format(name)}")
    if state == "running":
        started = converge([{"name": name, "state": state} for name in groups])
        assert not [one["msg"] for one in started.values() if one.get("failed")]
    wanted = [{"name": name, "state": state, **group.said} for name, group in groups.items()]
    before = documents(*dump)
    checked = converge(wanted, check=True)
    predicted = documents(*dump)
    done = converge(wanted)
    return Outcome(checked, done, converge(wanted, check=True), converge(wanted), before, predicted, documents(*dump))


def judge(outcome: Outcome, name: str, group: Group) -> None:
    """Check mode told the truth and wrote nothing; the second run changes nothing; virsh shows what was asked for."""
    checked, done = outcome.checked[name], outcome.done[name]
    assert not done.get("failed"), done.get("msg")
    assert etree.tostring(outcome.before[name]) == etree.tostring(outcome.predicted[name]), "check mode wrote something"
    assert done["changed"] and done["steps"] == checked["steps"] and done["diff"] == checked["diff"]
    for again in (outcome.checked_again[name], outcome.done_again[name]):
        assert not again["changed"] and not again["steps"] and not again.get("pending"), again
    assert {path: shown(outcome.after[name], path) for path in group.shows} == group.shows
    assert survivors(outcome.before[name]) <= survivors(outcome.after[name])
    assert len(outcome.after[name].xpath(".//*[local-name()='note'] | .//*[local-name()='commandline']")) == 2


@pytest.mark.parametrize("name", OFFLINE)
def test_a_definition_becomes_as_described(offline: Outcome, name: str) -> None:
    judge(offline, name, OFFLINE[name])


@pytest.mark.parametrize("name", [name for name, group in OFFLINE.items() if group.starts])
def test_qemu_starts_what_was_described(offline: Outcome, name: str) -> None:
    assert name in offline.done
    on(f"virsh start {name} --paused && virsh destroy {name}")


@pytest.mark.parametrize("name", LIVE)
def test_a_running_guest_becomes_as_described(running: Outcome, name: str) -> None:
    assert running.done[name]["pending"] == []
    judge(running, name, LIVE[name])


def test_what_waits_is_pending_until_a_restart_is_allowed(running: Outcome) -> None:
    """The cable's guest gets another card: defined now, there after a restart that must be allowed."""
    assert not running.done["cable"]["pending"]
    wish = {"name": "cable", "interfaces": [{"name": "eth0", "model": "e1000"}]}
    path = "devices/interface/model/@type"
    waits = converge([wish])["cable"]
    assert waits["pending"] == ["interfaces[eth0].model: virtio -> e1000"]
    assert (shown(documents()["cable"], path), shown(documents("--inactive")["cable"], path)) == ("virtio", "e1000")
    assert converge([wish])["cable"]["pending"] == waits["pending"], "it waits until it has happened"
    restarted = converge([{**wish, "allow_restart": True, "force": True, "wait_timeout": 3}])["cable"]
    assert [step.split()[0] for step in restarted["steps"]] == ["shut", "start"]
    assert shown(documents()["cable"], path) == "e1000"
    assert not converge([{**wish, "allow_restart": True}])["cable"]["changed"]


def test_apply_chooses_what_is_changed(running: Outcome) -> None:
    assert running.done
    live = converge([{"name": "pins", "title": "now", "apply": "live"}])["pins"]
    assert live["steps"] == ["set metadata of running pins"]
    later = converge([{"name": "pins", "description": "later", "apply": "next_boot"}])["pins"]
    assert later["pending"] == ["description: (unset) -> later"]
    runs, stored = documents()["pins"], documents("--inactive")["pins"]
    assert (shown(runs, "title"), shown(stored, "title")) == ("now", "")
    assert (shown(runs, "description"), shown(stored, "description")) == ("", "later")
    refused = converge([{"name": "pins", "machine": "pc", "apply": "live"}])["pins"]
    assert refused["failed"] and "while it runs; use apply: both" in refused["msg"]
    both = converge([{"name": "pins", "title": "now", "description": "later"}])["pins"]
    assert (both["steps"], both["pending"]) == (["define pins (title)", "set metadata of running pins"], [])


def test_a_balloon_that_is_ignored_is_said_not_asked_again(running: Outcome) -> None:
    """This guest has no operating system, so nobody answers: pending, and not a change each time."""
    assert running.done
    wish = {"name": "vcpus", "memory": {"current": "48MiB"}}
    first, again = converge([wish])["vcpus"], converge([wish])["vcpus"]
    assert first["changed"] and first["steps"][-1] == "set memory of running vcpus to 48 MiB"
    assert not again["changed"] and again["pending"] == ["memory.current: 64MiB -> 48MiB"]


@pytest.mark.parametrize(("machine", "model"), [("q35", "virtio"), ("q35", "e1000"), ("pc", "virtio")])
def test_a_guest_gets_devices_while_it_has_slots(machine: str, model: str) -> None:
    """Until libvirt has no more, which check mode tells before; then they wait for a restart, which brings them."""
    name, cards = f"{machine}-{model}", [{"name": "eth0", "type": "user", "model": "virtio"}]
    made: dict[str, t.Any] = {**LEAST, "name": name, "machine": machine, "state": "running", "interfaces": [*cards]}
    if (machine, model) == ("q35", "virtio"):  # where controllers are named, there are few ports
        made["controllers"] = [{"type": "pci", "index": 0, "model": "pcie-root"}]
    result = converge([made])[name]
    assert not result.get("failed"), result["msg"]
    if machine == "pc":  # it has more than twenty slots
        cards += [{"name": f"eth{number}", "type": "user", "model": model} for number in range(1, 20)]
        assert not converge([{"name": name, "interfaces": cards}])[name]["pending"]
    pending: list[str] = []
    while not pending and len(cards) < 40:
        cards.append({"name": f"eth{len(cards)}", "type": "user", "model": model})
        wish = {"name": name, "interfaces": cards}
        checked, done = converge([wish], check=True)[name], converge([wish])[name]
        assert not done.get("failed"), done["msg"]
        assert {key: checked[key] for key in ("steps", "pending", "notes")} == {
            key: done[key] for key in ("steps", "pending", "notes")
        }
        pending = done["pending"]
    (note,) = done["notes"]
    assert pending == [f"interfaces[{cards[-1]['name']}]: (unset) -> user"] and "has no free PCI" in note
    card = f"<interface type='user'><model type='{model}'/></interface>"
    refused = on(f"virsh attach-device {name} /dev/stdin --live 2>&1 || true", given=card)
    assert "No more available PCI slots" in refused
    assert not converge([wish])[name]["changed"]
    restarted = converge([{**wish, "allow_restart": True, "force": True, "wait_timeout": 3}])[name]
    assert not restarted["pending"] and shown(documents()[name], "count(devices/interface)") == str(len(cards))
    on(f"virsh destroy {name} && virsh undefine {name}")


def test_what_only_a_boot_brings_waits() -> None:
    """Each of them fails when virsh tries it."""
    name = "boots"
    cdrom = {"name": "cd", "device": "cdrom", "bus": "sata", "source": f"{IMAGES}/medium.iso"}
    drive = {"name": "drive", "device": "cdrom", "bus": "usb"}
    usb = {"type": "usb", "index": 1, "model": "qemu-xhci"}
    assert not converge([{"name": name, **LEAST, "state": "running"}])[name].get("failed")
    wish = {"name": name, "disks": [cdrom, drive], "controllers": [usb]}
    checked, done = converge([wish], check=True)[name], converge([wish])[name]
    assert done["changed"] and done["pending"] == checked["pending"] and len(done["pending"]) == len(done["notes"]) == 3
    assert not converge([wish])[name]["changed"]
    for xml in documents("--inactive")[name].xpath("devices/disk | devices/controller[@type='usb'][@index='1']"):
        device = etree.tostring(xml, encoding="unicode")
        refused = f"virsh attach-device {name} /dev/stdin --live >/dev/null 2>&1 || echo refused"
        assert on(refused, given=device).strip() == "refused", device
    on(f"virsh destroy {name} && virsh undefine {name}")


def test_a_common_cpu_is_what_libvirt_says() -> None:
    """The host's own model is what it has in common with itself."""
    model = "{{ told.host.domain_capabilities.host_model_xml }}"
    again = {"corral.virt.virt_host_info": {"baseline": [model]}, "register": "told"}
    host = play_and_tell({"corral.virt.virt_host_info": {}, "register": "told"}, again)["host"]
    common = on(
        "virsh domcapabilities --virttype qemu >/tmp/all.xml && virsh hypervisor-cpu-baseline --virttype qemu "
        "/tmp/all.xml"
    )
    assert host["cpu_baseline"]["model"] == etree.fromstring(common).findtext("model")


@pytest.mark.deep
def test_tasks_of_the_guide_work() -> None:
    """As they stand there, in their order; and nothing is left of what they made."""
    tasks = guide("guests")
    assert len(tasks) >= 14
    before = on(f"virsh list --all --name | sort; ls {IMAGES}")
    LAB.play(*tasks)
    assert on(f"virsh list --all --name | sort; ls {IMAGES}") == before


@pytest.mark.deep  # what its tasks use, other tests of the lab ask one by one
def test_recipes_work() -> None:
    """As they stand in the guide, in their order; nothing is left but the copy."""
    tasks = guide("recipes")
    assert len(tasks) >= 20
    on(
        f"cd {IMAGES} && image=debian-12.0123456789ab.qcow2 && qemu-img create -q -f qcow2 $image 64M && ln -s $image "
        "debian-12.qcow2 && echo '{}' >.$image.json && truncate -s 1M installer.iso windows.iso virtio-win.iso && "
        "virsh -q pool-refresh default; ip link add br42 type bridge && ip link set br42 up"
    )
    before = on(f"virsh list --all --name | sort; ls -A {IMAGES}; virsh net-list --all --name | sort")
    gone = next(number for number, task in enumerate(tasks) if task["name"] == "Remove the guests")
    LAB.play(*tasks[:gone])
    assert on("virsh domstate win1") == "running"
    described = on("virsh dumpxml win1")
    assert "secure='yes'" in described and "<tpm model='tpm-crb'>" in described
    assert "<address domain='0x0000' bus='0x65' slot='0x00' function='0x0'/>" in on("virsh dumpxml desk1")
    assert [line.split()[1:3] for line in on("virsh -q domiflist db1").splitlines()] == [
        ["bridge", "br42"],
        ["network", "backstage"],
    ]
    assert '"virtual-size": 21474836480' in on(f"qemu-img info --output=json {IMAGES}/web1-system.qcow2")
    assert "backing" not in on(f"qemu-img info {IMAGES}/web3-system.qcow2")
    on("qemu-img check -q /srv/copies/web1-system.qcow2 && virsh -q define --validate /srv/copies/web1.xml")
    LAB.play(*tasks[gone:])
    assert on(f"virsh list --all --name | sort; ls -A {IMAGES}; virsh net-list --all --name | sort") == before
    on(
        f"rm -r /srv/copies; ip link del br42; cd {IMAGES} && rm -f debian-12.* .debian-12.* installer.iso "
        "windows.iso virtio-win.iso"
    )


IDLE = "<filter name='closed'><rule action='drop' direction='inout'><all/></rule></filter>"


@pytest.fixture
def sender() -> Iterator[tuple[str, Callable[[str], bool]]]:
    """A small guest on the lab's network, its address, and whether a command in it succeeds."""
    small = Path(LAB.run(sys.executable, HERE / "lab.py", "small-image", "--name", LAB.name).strip())
    (LAB.folder / "sender.known").write_text(f"sender {small.with_name('host_key.pub').read_text()}")
    nic = {"name": "eth0", "bridge": "br0", "mac": "52:54:00:00:00:96"}  # of which its address comes
    wish = {
        **LEAST,
        "name": "sender",
        "state": "running",
        "memory": "96MiB",
        "image": "small.qcow2",
        "interfaces": [nic],
    }
    image = {"corral.virt.virt_image": {"name": "small.qcow2", "src": str(small)}}
    LAB.play(image, {"corral.virt.virt_domain": {key: value for key, value in wish.items() if key != "disks"}})
    address = f"{LAB.variable('virt_lab_guest_prefix')}.{0x96}"
    options = (f"-oUserKnownHostsFile={LAB.folder}/sender.known", "-oHostKeyAlias=sender", "-oConnectTimeout=5")

    def succeeds(command: str) -> bool:
        ssh = ("ssh", "-n", "-i", f"{LAB.folder}/id_ed25519", *options, "--", f"root@{address}", command)
        return subprocess.run(ssh, capture_output=True, check=False, timeout=60).returncode == 0

    until(lambda: succeeds("true"), timeout_s=60)
    yield address, succeeds
    gone = {"name": "sender", "state": "absent", "force": True, "wait_timeout": 1, "remove_storage": True}
    LAB.play({"corral.virt.virt_domain": gone}, {"corral.virt.virt_image": {"name": "small.qcow2", "state": "absent"}})


@pytest.mark.deep
def test_clean_traffic_stops_what_a_guest_sends_as_another(sender: tuple[str, Callable[[str], bool]]) -> None:
    """With packets: pings from a borrowed address are answered without the filter, and not with it.

    Its own always are.
    """
    address, succeeds = sender
    borrowed = f"{address.rpartition('.')[0]}.151"
    assert succeeds(f"ip address add {borrowed}/24 dev eth0")

    def answered(source: str) -> bool:
        return succeeds(f"ping -c 2 -W 2 -I {source} {LAB.gateway}")

    assert answered(address) and answered(borrowed)
    nic: dict[str, t.Any] = {
        "name": "eth0",
        "filterref": {"name": "clean-traffic", "parameters": [{"name": "IP", "value": address}]},
    }
    result = converge([{"name": "sender", "interfaces": [nic]}])["sender"]
    assert result["changed"] and not result["pending"], result
    assert answered(address) and not answered(borrowed)
    on("virsh nwfilter-define /dev/stdin", given=IDLE)
    refused = converge([{"name": "sender", "interfaces": [{"name": "eth0", "filterref": {"name": "closed"}}]}])[
        "sender"
    ]
    on("virsh nwfilter-undefine closed")
    assert refused["failed"] and "the rules of closed for all have no effect on this host" in refused["msg"]


def test_imported_arguments_change_nothing(running: Outcome) -> None:
    """Every guest of this host, described by its own arguments: nothing to do, in check mode and for real."""
    assert running.done
    result = play_and_tell({"corral.virt.virt_domain_info": {"arguments": True}, "register": "told"})
    found = [one["arguments"] for one in result["domains"]]
    assert {one["name"] for one in found} == {*OFFLINE, *LIVE}
    before = documents("--inactive", "--security-info")
    results = converge(found)
    assert {
        name: one.get("msg") or one["steps"] for name, one in results.items() if one.get("failed") or one["changed"]
    } == {}
    after = documents("--inactive", "--security-info")
    assert {name: etree.tostring(one) for name, one in after.items()} == {
        name: etree.tostring(one) for name, one in before.items()
    }
