"""The examples of every plugin do what they show: those that libvirt's test driver can carry out run, the others are
read by Ansible.
"""

from __future__ import annotations

import importlib
import json
import re
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.contract.play import Play
from ansible_collections.corral.virt.tests.contract.test_inventory import Inventory, guest
from ansible_collections.corral.virt.tests.tools import payload

pytestmark = pytest.mark.slow

# the test driver has no models of CPUs
NEEDS_QEMU = {"Find a CPU that guests can have on all hypervisors", "Use it for a guest"}
# files, two daemons, systemd
NEEDS_A_HOST = {
    "virt_backup",
    "virt_backup_files",
    "virt_backup_info",
    "virt_prove",
    "virt_restore",
    "virt_bridge",
    "virt_daemon",
    "virt_disk_move",
    "virt_pool_drain",
    "virt_firewall",
    "virt_image",
    "virt_image_info",
    "virt_migrate",
    "virt_migrations",
    "virt_mounts",
    "virt_nwfilter",
    "virt_pool",
    "virt_secret",
    "virt_snapshot",
    "virt_volume",
    "virt_tls",
    "virt_tuning",
    "virt_writable",
}
MODULES = sorted(path.stem for path in (payload.ROOT / "plugins/modules").glob("virt_*.py"))
FILTERS = sorted(path.stem for path in (payload.ROOT / "plugins/filter").glob("*.py"))


def examples(kind: str, name: str) -> str:
    """What the documentation shows."""
    return str(importlib.import_module(f"ansible_collections.corral.virt.plugins.{kind}.{name}").EXAMPLES)


INVENTORIES = list(yaml.safe_load_all(examples("inventory", "virt")))


@pytest.mark.parametrize("example", INVENTORIES, ids=lambda example: str(sorted(example)))
def test_examples_of_the_inventory_show_all_guests(tmp_path: Path, example: dict[str, t.Any]) -> None:
    inventory = Inventory(tmp_path / "inventory")
    uri = inventory.host("h1", guest(1, "web1", title="First"), guest(2, "web2"))
    inventory.write("hosts.yml", hyper={"hosts": {"h1": None}})
    changed = {"hypervisors": dict.fromkeys(example["hypervisors"], uri)} if "hypervisors" in example else {"uri": uri}
    inventory.write(
        "virt.yml",
        **{**example, **changed, **({"cache_connection": str(tmp_path / "kept")} if "cache" in example else {})},
    )
    known = inventory.list()
    assert set(known["guests_running"]["hosts"]) == {"web1", "web2"}, inventory.stderr
    assert "Failed to parse" not in inventory.stderr and "not shown" not in inventory.stderr
    if "keyed_groups" in example:
        assert known["vcpus_2"]["hosts"] == ["web1", "web2"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a key, as a user has one."""
    home = tmp_path_factory.mktemp("home")
    (home / ".ssh").mkdir()
    (home / ".ssh/id_ed25519.pub").write_text("ssh-ed25519 AAAA me\n")
    return home


@pytest.fixture
def play(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Two hypervisors; the first has the guests that examples speak of."""
    monkeypatch.setenv("HOME", str(home))
    play, there = (
        Play(tmp_path),
        [guest(number, name, "shutdown") for number, name in enumerate(["centos1", "web1", "web2", "desk"])],
    )
    for name, guests in (("hyper1", there), ("hyper2", [])):
        images = "".join(_image(image) for image in ("centos.qcow2", "debian-12.qcow2"))
        (tmp_path / f"{name}.xml").write_text(POOL.format(images, "".join(guests)))
    for tree in ("salt", "pillar"):  # of a Salt master
        (tmp_path / tree).mkdir()
    hosts: list[dict[str, t.Any]] = [
        {"name": name, "cpus": 8, "memory_mib": 65536, "guests": []} for name in ("hyper1", "hyper2")
    ]
    (tmp_path / "cluster.json").write_text(json.dumps({"hosts": hosts}))
    play.hosts(hyper={name: {"libvirt": f"test://{tmp_path}/{name}.xml"} for name in ("hyper1", "hyper2")})
    return play


def test_examples_use_the_results_of_their_own_module_only() -> None:
    """All of them run in one play, which would not tell."""
    own = {module: {task["register"] for task in _tasks(module) if "register" in task} for module in MODULES}
    assert len(set().union(*own.values())) > 3
    for module, mine in own.items():
        used = {*re.findall(r"\b(\w+)[.\[]", " ".join(re.findall(r"{{.*?}}", json.dumps(_tasks(module)))))}
        assert used & set().union(*own.values()) <= mine | {"virt_found", "virt_host"}, module  # `before` has these


def _tasks(module: str) -> list[dict[str, t.Any]]:
    return t.cast("list[dict[str, t.Any]]", yaml.safe_load(examples("modules", module)))


def _image(name: str) -> str:
    target = f"<target><path>/var/lib/libvirt/images/{name}</path><format type='qcow2'/></target>"
    return f"<volume type='file'><name>{name}</name><capacity unit='MiB'>2048</capacity>{target}</volume>"


POOL = """<node><memory>33554432</memory>
<pool type='dir'><name>default</name><target><path>/var/lib/libvirt/images</path></target>{}</pool>{}
<network><name>lab</name><bridge name='virbr7'/><ip address='192.168.150.1' netmask='255.255.255.0'/></network></node>"""


@pytest.mark.parametrize(
    ("hosts", "on_the_controller"), [("hyper1", False), ("hyper", True)], ids=["host", "controller"]
)
def test_examples_of_modules_run(play: Play, hosts: str, on_the_controller: bool) -> None:
    before: list[dict[str, t.Any]] = [
        {"corral.virt.virt_domain_info": {}, "register": "virt_found"},
        {"corral.virt.virt_host_info": {}, "register": "virt_host"},
    ]
    modules = [each for each in MODULES if (each in payload.ON_THE_CONTROLLER) == on_the_controller]
    shown = [
        {"register": "told", **task, "name": f"{module}: {task['name']}"}
        for module in modules
        if module not in NEEDS_A_HOST
        for task in _tasks(module)
        if task["name"] not in NEEDS_QEMU
    ]
    defaults = {"group/corral.virt.virt": {"uri": "{{ libvirt }}"}}
    play.run(
        *before,
        *shown,
        {"ansible.builtin.debug": {"msg": "all done"}},
        hosts=hosts,
        options=["--check", "--diff"],
        module_defaults=defaults,
    )
    assert "all done" in play.stdout and "failed=0" in play.stdout and "FAILED" not in play.stdout, play.stdout


def test_every_example_can_be_read_by_ansible(play: Play) -> None:
    tasks = [task for module in MODULES for task in _tasks(module)]
    tasks += [task for name in FILTERS for task in yaml.safe_load(examples("filter", name))]
    assert play.reads(tasks), play.stdout
