"""What a job of AWX or Semaphore finds: an empty home, or none, credentials in its environment, and a disk that is thrown
away afterwards.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.plugins.plugin_utils._controller.home_files import KNOWN_HOSTS
from ansible_collections.corral.virt.tests.contract.play import Play, defaults
from ansible_collections.corral.virt.tests.contract.test_authority import Hosts, hosts, keys, made
from ansible_collections.corral.virt.tests.contract.test_inventory import Inventory, guest
from ansible_collections.corral.virt.tests.tools import preloaded
from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value

__all__ = ["hosts", "keys", "made"]  # fixtures

pytestmark = pytest.mark.slow

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGcTn9KpO4H0tB1aXk1jvGv7F2m0Tn3bF0fXhQkqk0aB"
OTHER_KEY = KEY.replace("GcT", "GcU")
# What AWX sets for an update of an inventory, and for a job.
UPDATE = {
    "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
    "ANSIBLE_INVENTORY_EXPORT": "True",
    "ANSIBLE_VERBOSE_TO_STDERR": "True",
    "ANSIBLE_HOST_PATTERN_MISMATCH": "error",
    "CORRAL_VIRT_HOST_KEYS": "file,record",
}
JOB = {"ANSIBLE_HOST_KEY_CHECKING": "False"}
Variables = dict[str, dict[str, t.Any]]


@pytest.fixture
def project(tmp_path: Path) -> Inventory:
    """Two hypervisors; web1 was made by the collection, old1 by somebody else, and both claim to have twin."""
    inventory = Inventory(tmp_path / "inventory")

    def one(number: int, name: str, state: str = "running", key: str = KEY) -> str:
        record = {"address": [f"10.0.0.{number}"], "ssh-host-key": [key]} if name != "old1" else {}
        return guest(number, name, state, record)

    first = inventory.host("first", one(1, "web1"), one(2, "old1", "shutdown"), one(3, "twin"))
    second = inventory.host("second", one(4, "twin", key=OTHER_KEY), one(5, "batch1", "paused"))
    inventory.write("hosts.yml", hyper={"hosts": {"hyper1": {"where": first}, "hyper2": {"where": second}}})
    inventory.write("virt.yml", plugin="corral.virt.virt", uri="{{ where }}")
    return inventory


def update(project: Inventory, **environment: str | None) -> dict[str, t.Any]:
    """The groups and variables that AWX stores."""
    out = project.place.parent / "output.json"
    out.unlink(missing_ok=True)
    words = ["ansible-inventory", "--list", "--export", "-i", str(project.place), "--output", str(out)]
    words += ["--playbook-dir", str(project.place)]
    wanted = {**UPDATE, "HOME": str(project.place.parent / "home"), **environment}
    env = defaults(**{name: value for name, value in wanted.items() if value is not None})
    done = preloaded.run(words, cwd=project.place.parent, env=env, timeout_s=60, given=None)
    project.stderr = " ".join(done.stderr.split())
    assert done.returncode == 0, done.stderr
    return t.cast("dict[str, t.Any]", json.loads(out.read_text()))


def enabled(variables: t.Mapping[str, t.Any]) -> bool | None:
    """AWX's rule with virt_state as enabled variable and running as its value; None: it leaves the host as it is, and
    new hosts are enabled.
    """
    return variables["virt_state"].lower() == "running" if "virt_state" in variables else None


def test_what_awx_imports(project: Inventory) -> None:
    found = update(project)
    known: Variables = found["_meta"]["hostvars"]
    assert "__ansible_unsafe" not in json.dumps(found)
    assert {name: enabled(known[name]) for name in known} == {
        "hyper1": None,
        "hyper2": None,
        "web1": True,
        "old1": False,
        "twin": True,
        "batch1": False,
    }
    identities = {name: known[name].get("virt_uuid", "") for name in known}
    assert identities == {
        "hyper1": "",
        "hyper2": "",
        **{name: f"00000000-0000-0000-0000-00000000000{n}" for name, n in [("web1", 1), ("old1", 2), ("twin", 3)]},
        "batch1": "00000000-0000-0000-0000-000000000005",
    }
    assert update(project) == found, "an update that changes nothing"


def test_an_update_that_fails_is_one(project: Inventory) -> None:
    """Else AWX removes the guests of a hypervisor that is away."""
    project.write("virt.yml", plugin="corral.virt.virt", hypervisors={"h1": "test:///nowhere.xml"}, strict_hosts=True)
    update(project)  # the other file of the directory was read, which is enough for what AWX itself sets
    assert "guests on h1 are not shown" in project.stderr
    with pytest.raises(AssertionError, match="guests on h1 are not shown"):
        update(project, ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED="true")


def ssh(variables: t.Mapping[str, t.Any], *before: str) -> dict[str, str]:
    """What ssh makes of a guest's arguments."""
    words = ["ssh", *before, *shlex.split(variables["ansible_ssh_common_args"]), "-G", "guest"]
    done = subprocess.run(words, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def test_an_empty_home_accepts_no_unknown_key(project: Inventory) -> None:
    known: Variables = update(project)["_meta"]["hostvars"]
    result = ssh(known["web1"])
    assert result["knownhostscommand"] == f"/bin/echo web1 {KEY}"
    assert (result["hostkeyalias"], result["stricthostkeychecking"]) == ("web1", "true")
    assert result["userknownhostsfile"] == "/dev/null", "nothing of the machine that read the inventory"
    # Two hypervisors say different things of it: neither is believed.
    assert "knownhostscommand" not in ssh(known["twin"]) and ssh(known["twin"])["stricthostkeychecking"] == "true"
    assert "ansible_ssh_common_args" not in known["old1"]


def test_without_being_told_no_hypervisor_says_who_a_guest_is(project: Inventory) -> None:
    result = ssh(update(project, CORRAL_VIRT_HOST_KEYS=None)["_meta"]["hostvars"]["web1"])
    assert "knownhostscommand" not in result and result["stricthostkeychecking"] == "true"


def test_a_job_that_checks_no_host_keys_checks_these(project: Inventory) -> None:
    """AWX disables the check for all jobs, and ssh obeys the first of two options."""
    listed = update(project)
    assert listed["_meta"]["hostvars"]["web1"]["ansible_ssh_host_key_checking"] is True
    (project.place.parent / "stored.json").write_text(json.dumps(_as_source(listed)))
    here = {"HOME": str(project.place.parent / "other home"), "ANSIBLE_HOME": str(project.place.parent / "runner")}
    words = ["ansible", "-i", "stored.json", "web1", "-m", "ansible.builtin.ping", "-vvv", "-T", "1"]
    env = defaults(**JOB, **here)
    done = preloaded.run(words, cwd=project.place.parent, env=env, timeout_s=60, given=None)
    assert f"KnownHostsCommand=/bin/echo web1 {KEY}" in done.stdout
    assert "StrictHostKeyChecking=yes" in done.stdout and "StrictHostKeyChecking=no" not in done.stdout


def _as_source(listed: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """An inventory of hosts and their variables alone, as a job gets it."""
    return {
        "all": {
            "hosts": {
                **listed["_meta"]["hostvars"],
                "web1": {**listed["_meta"]["hostvars"]["web1"], "ansible_host": "127.0.0.1", "ansible_port": 1},
            }
        }
    }


@pytest.mark.parametrize(
    ("sources", "lines", "expected"),
    [
        ("file,record", f"web1 {OTHER_KEY}\n", "file"),
        ("file,record", f"web2 {OTHER_KEY}\n", "record"),
        ("record,file", f"web1 {OTHER_KEY}\n", "record"),
        ("file", "", "file"),
    ],
)
def test_what_is_known_here_is_believed_first(sources: str, lines: str, expected: str, project: Inventory) -> None:
    home = project.place.parent / "home"
    path = Path(KNOWN_HOSTS.replace("~", str(home)))
    path.parent.mkdir(parents=True)
    path.write_text(lines)
    result = ssh(update(project, CORRAL_VIRT_HOST_KEYS=sources)["_meta"]["hostvars"]["web1"])
    assert ("knownhostscommand" in result) is (expected == "record")
    assert result["userknownhostsfile"] == ("/dev/null" if expected == "record" else str(path))


def test_who_sets_the_check_keeps_it(project: Inventory) -> None:
    project.write("group_vars/guests.yml", ansible_host_key_checking=False)
    assert "ansible_ssh_host_key_checking" not in project.list()["_meta"]["hostvars"]["web1"]


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody can write in this home, not even root. Ansible's own directories are elsewhere, as in an execution
    environment.
    """
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.setenv("ANSIBLE_HOME", str(tmp_path / "runner"))
    monkeypatch.setenv("ANSIBLE_REMOTE_TEMP", str(tmp_path / "runner/remote"))
    for name in ("CORRAL_VIRT_CA_DIR", "CORRAL_VIRT_KNOWN_HOSTS", "SSH_AUTH_SOCK"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "runner"


def texts(place: Path) -> dict[str, str]:
    """Both authorities, as a credential gives them."""
    return {
        f"{prefix}ca_{option}": (place / f"{authority}/1/ca-{name}.pem").read_text()
        for authority, prefix in (("libvirt", ""), ("qemu", "qemu_"))
        for option, name in (("certificate", "cert"), ("key", "key"))
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="the files belong to root")
def test_certificates_without_a_home_leave_no_key(hosts: Hosts, homeless: Path) -> None:
    result = hosts.certify(None, **texts(hosts.first), controller=True, force=True)
    assert result["h1"]["changed"] and result["h2"]["changed"], hosts.stdout
    assert {*result["h1"]["certificates"]} == {"libvirt", "qemu"}, "no certificate that would be gone at once"
    assert hosts.certify(None, **texts(hosts.first), controller=True)["h1"]["changed"] is False
    assert not [path for path in homeless.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert not list(homeless.rglob("corral-ca")), "what was written down is gone with Ansible's other files"


@pytest.mark.skipif(os.geteuid() != 0, reason="the files belong to root")
def test_certificates_without_a_home_and_without_an_authority(hosts: Hosts, homeless: Path) -> None:
    before = hosts.files("h1")
    result = hosts.certify(None)["h1"]
    assert (
        result["failed"] and "the home directory cannot be written; set ca_dir (pki_ca_dir of role pki" in result["msg"]
    )
    assert hosts.files("h1") == before


def test_host_keys_without_a_home(homeless: Path, tmp_path: Path) -> None:
    """It is no failure; a file that the user chose is."""
    play = Play(tmp_path)
    play.hosts(hyper={"h1": {}})

    def keep(path: str) -> dict[str, t.Any]:
        output = {"path": path, "keys": {"web1": KEY}}
        return play.run({"corral.virt.virt_known_hosts": output, "register": "told", "ignore_errors": True})["h1"]

    result = keep(KNOWN_HOSTS)
    assert result["changed"] is False and "set guests_known_hosts (CORRAL_VIRT_KNOWN_HOSTS)" in result["msg"]
    assert keep("/dev/null/known_hosts")["failed"] is True or keep("~/other")["failed"] is True
    assert keep(str(tmp_path / "known_hosts"))["changed"] is True


@pytest.mark.parametrize("job", [True, False], ids=["in AWX", "elsewhere"])
def test_a_stored_inventory_is_not_waited_for(job: bool, tmp_path: Path) -> None:
    """A job of AWX cannot see a guest that it has just made."""
    create, site = (yaml.safe_load((ROLES.parent / f"playbooks/{name}.yml").read_text()) for name in ("create", "site"))
    checks = [task for play in site for task in play.get("post_tasks", [])]
    [asked] = [task["when"] for task in checks if task["name"].startswith("Check that the inventory has the guests")]
    created = {"__guests_result": {"results": [{"name": "web1", "ssh_host_key": KEY}]}, "virt_host": {"host": {}}}
    known = {
        **create[0]["vars"],
        "__virt_guest": {"name": "web1", "state": "running"},
        "__guests_placed": {"placements": {"web1": "h1"}},
        "guest": "web1",
        **({"awx_job_id": 7} if job else {}),
    }
    inventory = {
        "all": {"children": {"hyper": {"hosts": {"h1": created}}, "guests_running": {"hosts": {"old1": None}}}}
    }
    found = value(
        tmp_path,
        f"[__virt_created.reached, {' and '.join(f'({condition})' for condition in asked)}]",
        [],
        known,
        host="h1",
        inventory=json.dumps(inventory),
        arguments=["--limit", "h1"],
    )
    assert [str(one) == "True" for one in found] == [not job, not job]
