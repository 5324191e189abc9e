"""The way from Salt Virt, as somebody goes it: files of Salt's in, an inventory out that Ansible loads, whose guests
libvirt's test driver takes; then the guests that exist.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.plugins.module_utils._network.plan_network import NETWORK
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun_options
from ansible_collections.corral.virt.tests.contract.play import Play, defaults
from ansible_collections.corral.virt.tests.contract.test_inventory import guest
from ansible_collections.corral.virt.tests.golden.case import GOLDEN
from ansible_collections.corral.virt.tests.tools import payload, preloaded

pytestmark = pytest.mark.slow

HOST = (GOLDEN / "host.xml").read_text().replace("web1-", "other-")
GUIDE = (payload.ROOT / "docs/docsite/rst/guide_salt.rst").read_text()
SHOWN = [line.strip()[2:] for line in re.findall(r"^ +[$#] .*$", GUIDE, re.MULTILINE)]
# Roles on a bare machine, a daemon of libvirt, Salt itself: the lab, and nobody.
NOT_HERE = re.compile(r"corral\.virt\.site|virsh |^salt ")
TREES = {
    "salt/top.sls": "base:\n  'hyper*':\n    - kvm\n  hyper1:\n    - guests\n",
    "salt/kvm/init.sls": "libvirt:\n  pkg.installed: []\n  virt.keys:\n    - require:\n      - pkg: libvirt\n",
    "salt/guests.sls": """
web9:
  virt.running:
    - cpu: {maximum: 2, current: 1}
    - mem: 256
    - disk_profile: database
    - nic_profile: dual
    - graphics: {type: vnc}
    - boot_dev: network hd
    - pub_key: /etc/salt/web9.pub
db9:
  virt.defined:
    - cpu: 1
    - mem: {boot: 512m, current: 256m}
    - disks: [{name: system, size: 1024}]
    - interfaces: [{name: eth0, type: bridge, source: br0, mac: 'ac:de:48:00:00:01'}]
    - serials: [{type: pty}]
    - clock: {utc: False}
""",
    "salt/lab.sls": "lab:\n  virt.network_running: [{bridge: virbr7}, {forward: nat}, {ipv4_config: {cidr: 192.168.77.0/24}}]\n",
    "pillar/top.sls": "base: {'*': [virt], hyper2: [secret]}\n",
    "pillar/virt.sls": "virt: {disk: {database: [{system: {size: 2048}}, {data: {size: 1024}}]}, nic: {dual: {eth0: {bridge: br0}, eth1: {bridge: br0}}}}\n",
    "pillar/secret.sls": "virt: {connection: {uri: 'qemu:///system', auth: {username: u, password: geheim}}}\n",
}  # fmt: skip


class Master:
    """Trees of a Salt master, and commands beside them."""

    def __init__(self, place: Path) -> None:
        self.place, self.code = place, 0
        for path, text in TREES.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(text)
        rendered = "hyper1: {web8: {virt: [{cpu: 1}, {mem: 64}, running], __sls__: guests}}\n"
        (place / "highstate.yml").write_text(rendered)
        (place / "pillars.yml").write_text("hyper1: {virt: {}}\n")

    def do(self, command: str, *more: str) -> str:
        """What a command of the guide printed, in one line."""
        words = [word.replace("/srv/", f"{self.place}/") for word in shlex.split(command)]
        environment = defaults(CORRAL_VIRT_KNOWN_HOSTS=str(self.place / "known_hosts"))
        done = preloaded.run([*words, *more], cwd=self.place, env=environment, timeout_s=120, given=None)
        self.code = done.returncode
        return re.sub(r"\s+", " ", done.stdout + done.stderr)

    def files(self) -> dict[str, str]:
        """The inventory as it is."""
        root = self.place / "inventory"
        return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}

    def connect(self) -> None:
        """The hypervisors of the inventory are libvirt's test drivers of this machine."""
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        for name, number in (("hyper1", 1), ("hyper2", 2)):
            path = self.place / f"{name}.xml"
            path.write_text(HOST.replace("</node>", f"{guest(number, f'web{number}', 'running')}</node>"))
            variables = {**local, "virt_uri": f"test://{path}"}
            place = self.place / f"inventory/host_vars/{name}/lab.json"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps(variables))


CONVERT = "ansible-playbook corral.virt.from_salt -e salt_root=/srv/salt -e pillar=/srv/pillar -e out=inventory"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Master:
    """With the inventory."""
    master = Master(tmp_path_factory.mktemp("master"))
    master.do(CONVERT)
    return master


def test_check_mode_shows_the_files_and_writes_none(tmp_path: Path) -> None:
    master = Master(tmp_path)
    result = master.do(CONVERT, "--check", "--diff")
    assert master.code == 0 and "changed=1 " in result and "+ - name: web9" in result
    assert not (master.place / "inventory").exists()


def test_the_inventory_is_written_once(tmp_path: Path) -> None:
    master = Master(tmp_path)
    result = master.do(CONVERT)
    assert master.code == 0 and "changed=1 " in result
    assert "web9:virt.running:pub_key: cloud-init seeds guests here" in result
    files = master.files()
    assert list(files) == ["from_salt.txt", "group_vars/hyper/guests.yml", "group_vars/hyper/settings.yml", "hosts.yml"]
    assert "geheim" not in "".join(files.values()) + result and "lab.sls" in files["from_salt.txt"]
    assert "changed=0 " in master.do(CONVERT) and master.code == 0 and master.files() == files


def test_a_file_with_other_content_is_replaced_only_when_asked(master: Master) -> None:
    files = master.files()
    (master.place / "inventory/group_vars/hyper/guests.yml").write_text("virt_guests: []\n")
    assert "it exists with other content" in master.do(CONVERT) and master.code == 2
    assert master.files() == {**files, "group_vars/hyper/guests.yml": "virt_guests: []\n"}
    master.do(CONVERT, "-e", "replace=true")
    assert master.code == 0 and master.files() == files


def test_all_files_are_written_or_none(master: Master, tmp_path: Path) -> None:
    (tmp_path / "out/group_vars/hyper/guests.yml").mkdir(parents=True)
    result = master.do(CONVERT.replace("out=inventory", f"out={tmp_path}/out"))
    assert master.code == 2 and "it is a directory" in result
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_wrong_arguments_are_refused(master: Master) -> None:
    assert (
        "out: from_salt requires this argument" in master.do("ansible-playbook corral.virt.from_salt")
        and master.code == 2
    )
    assert "nothing to convert: name salt_root" in master.do("ansible-playbook corral.virt.from_salt -e out=x")
    assert master.code == 2


def test_ansible_loads_the_inventory(master: Master) -> None:
    words = ["ansible-inventory", "-i", "inventory", "--list"]
    done = preloaded.run(words, cwd=master.place, env=defaults(), timeout_s=60, given=None)
    known = json.loads(done.stdout)
    assert "Failed to parse" not in done.stderr
    assert known["hyper"]["hosts"] == ["hyper1", "hyper2"]
    variables = known["_meta"]["hostvars"]["hyper1"]
    assert sorted(one["name"] for one in variables["virt_guests"]) == ["db9", "web9"]
    assert variables["virt_disk_profiles"]["database"][1] == {"name": "data", "size": "1GiB"}


def test_virt_domains_accepts_the_guests(master: Master, tmp_path: Path) -> None:
    (tmp_path / "h.xml").write_text(HOST)
    files = master.files()
    settings = yaml.safe_load(files["group_vars/hyper/settings.yml"])
    guests = yaml.safe_load(files["group_vars/hyper/guests.yml"])["virt_guests"]
    assert {one.pop("host") for one in guests} == {"hyper1"}
    play = Play(tmp_path)
    play.hosts(hyper={"h1": {**settings, "virt_uri": f"test://{tmp_path}/h.xml"}})
    task = {"corral.virt.virt_domains": {"domains": guests, "uri": "{{ virt_uri }}"}, "register": "told"}
    result = play.run(task, options=["--check"])["h1"]
    assert result.get("changed") and not result.get("failed"), play.stdout
    assert {one["name"] for one in result["results"] if one["changed"]} == {"web9", "db9"}


def test_the_commands_of_the_guide_work_in_their_order(tmp_path: Path) -> None:
    master = Master(tmp_path)
    left = []
    for command in dict.fromkeys(SHOWN):
        if NOT_HERE.search(command):
            left.append(command)
            continue
        result = master.do(command, *(["-e", "replace=true"] if "from_salt" in command else []))
        assert master.code == 0, f"{command}: {result}"
        if "hosts.yml" in master.files() and not (tmp_path / "hyper1.xml").exists():
            (tmp_path / "inventory/hosts.yml").write_text(
                json.dumps({"all": {"children": {"hyper": {"hosts": {"hyper1": {}, "hyper2": {}}}}}})
            )
            master.connect()
    assert len(left) == 7, left
    assert "web8" in master.files()["group_vars/hyper/guests.yml"]


def test_guests_that_exist_are_taken_over(tmp_path: Path) -> None:
    master = Master(tmp_path)
    master.do(CONVERT)
    master.connect()
    command = next(one for one in SHOWN if "corral.virt.import" in one)
    result = master.do(command)
    assert master.code == 0, result
    guests = yaml.safe_load(master.files()["group_vars/hyper/guests.yml"])["virt_guests"]
    assert sorted(one["name"] for one in guests) == ["web1", "web2"]


def test_the_role_makes_the_networks(tmp_path: Path) -> None:
    (tmp_path / "h.xml").write_text(HOST)
    network = {"name": "lab", "mode": "nat", "ips": [{"address": "192.168.77.1", "prefix": 24}]}
    role = {"ansible.builtin.include_role": {"name": "corral.virt.networks"}}
    play = Play(tmp_path)
    defaults = {"group/corral.virt.virt": {"uri": f"test://{tmp_path}/h.xml"}}
    play.hosts(hyper={"h1": {"virt_networks": [network]}})
    assert play.ends(role, module_defaults=defaults) == 0 and "changed=1 " in play.stdout, play.stdout
    play.hosts(hyper={"h1": {"virt_networks": [{**network, "forward": "nat"}]}})
    assert play.ends(role, module_defaults=defaults) == 2
    assert "network lab in virt_networks: not an option of virt_network: forward" in play.stdout


def test_the_role_passes_on_every_option_of_a_network() -> None:
    role = payload.ROOT / "roles/networks"
    [task] = [one for one in yaml.safe_load((role / "tasks/main.yml").read_text()) if "corral.virt.virt_network" in one]
    options = set(run_noun_options.argument_spec(NETWORK.schema)) - {"seen"}  # of a single task that was reviewed
    assert set(task["corral.virt.virt_network"]) == options
    assert set(yaml.safe_load((role / "vars/main.yml").read_text())["__networks_options"]) == options


def test_salt_is_not_asked(master: Master) -> None:
    """A program in the tree is a file that is not read."""
    evil = master.place / "salt/evil.sls"
    evil.write_text("#!py\nimport os, libvirt\nos.system('touch evil')\n")
    result = master.do(CONVERT, "-e", "replace=true")
    assert "evil.sls: not read: the renderer py runs code" in result and master.code == 0
    assert subprocess.run(["find", str(master.place), "-name", "evil"], capture_output=True, check=True).stdout == b""
