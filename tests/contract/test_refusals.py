"""What tasks of roles and playbooks refuse, through Ansible: the host that it is about, and no other."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.contract.play import Play
from ansible_collections.corral.virt.tests.golden.case import HOST_URI
from ansible_collections.corral.virt.tests.tools import payload
from ansible_collections.corral.virt.tests.unit.roles.test_readers import FOREIGN, KEY, NAME, OURS

pytestmark = pytest.mark.slow

Hosts = dict[str, tuple[dict[str, t.Any], str]]
"""Variables of each host, and why it is refused; "" where it is not."""


def task_of(path: str, name: str) -> dict[str, t.Any]:
    """A task by the beginning of its name; what it imports is found from anywhere."""
    file = payload.ROOT / path
    [task] = [task for task in yaml.safe_load(file.read_text()) if task["name"].startswith(name)]
    if imported := task.get("ansible.builtin.import_tasks"):
        task["ansible.builtin.import_tasks"] = str(file.parent / imported)
    return t.cast("dict[str, t.Any]", task)


def run(play: Play, path: str, name: str, **more: t.Any) -> str:
    """What is printed by that task, which may fail, with the variables of its role."""
    variables = (payload.ROOT / path).parents[1] / "vars/main.yml"
    more |= {"vars_files": [str(variables)]} if variables.exists() else {}
    play.run(
        {**task_of(path, name), "ignore_errors": True}, vars={"ansible_facts": "{{ facts | default({}) }}"}, **more
    )
    return " ".join(play.stdout.split())


def checked(play: Play, role: str, options: t.Sequence[str]) -> dict[str, str]:
    """What a role's check of its settings says of each host that it refuses."""
    folder = payload.ROOT / "roles" / role
    *_before, check, refuse = yaml.safe_load((folder / "tasks/check.yml").read_text())
    play.run(
        check,
        {**refuse, "ignore_errors": True},
        vars={"ansible_facts": "{{ facts }}"},
        vars_files=[str(folder / "vars/main.yml")],
        options=[*options, "-vvv", "-e", json.dumps({f"__{role}_collections": str(payload.ROOT / ".cache")})],
    )
    found = re.findall(r'"msg": "(cannot .*? on (\w+): .*)"', play.stdout)
    return {host: json.loads(f'"{told}"').partition(f" on {host}: ")[2] for told, host in found}


def readers(namesake: list[str], *keys: str) -> dict[str, t.Any]:
    """A host on which a user of that name may be there already."""
    found = {"ansible_facts": {"getent_passwd": {NAME: namesake}}}
    own = {"hypervisor_readers": keys, "hypervisor_reader_user": NAME}
    return {"__hypervisor_users": found, "__hypervisor_namesake": found, **own}


def upgraded(
    bridges: list[str], *, active: bool = True, before: dict[str, list[str]] | None = None
) -> dict[str, t.Any]:
    """A host that had a bridge and a pool, and what it has after an upgrade."""
    had = {"bridges": ["br0"], "pools": [{"name": "default", "active": True}, {"name": "off", "active": False}]}
    has = {"bridges": bridges, "pools": [{"name": "default", "active": active}]}
    return {"virt_host": {"host": {**had, "maintenance": before}}, "__maintenance_after": {"host": has}}


def emptied(host: str, *seen: dict[str, str], mark: str = "mine", **more: t.Any) -> dict[str, t.Any]:
    """What a host knows after that one was emptied, with the guests that are seen here then."""
    return {
        "maintenance_host": host,
        "maintenance_running_only": False,
        "maintenance_force": False,
        "virt_host": {"host": {"uuid": f"{host}-uuid", "guests": seen, "maintenance": {"id": mark} if mark else None}},
        "__maintenance_id": "mine",
        "__maintenance_results": [],
        "__maintenance_placed": {"stays": STAYS},
        **more,
    }


def rebalanced(*seen: dict[str, str], **moved: t.Any) -> dict[str, t.Any]:
    """What a host knows after guests moved, with those that are seen here then."""
    return {"__maintenance_seen": {"host": {"guests": seen}}, "__maintenance_moved": moved or {"skipped": True}}


def gate(*seen: dict[str, str], mark: str = "mine", force: bool = False) -> dict[str, t.Any]:
    """A host right before its reboot."""
    return {
        "maintenance_host": "{{ inventory_hostname }}",
        "maintenance_force": force,
        "__maintenance_act": "rebooted",
        "__maintenance_id": "mine",
        "__maintenance_last": {"host": {"guests": seen, "maintenance": {"id": mark} if mark else None}},
    }


def rebooted(*, uuid: str = "same", boot: str = "second", **more: t.Any) -> dict[str, t.Any]:
    """A host that was to reboot, as it was and as it is."""
    return {
        "virt_host": {"host": {"uuid": "same", "boot_id": "first"}},
        "__maintenance_after": {"host": {"uuid": uuid, "boot_id": boot}},
        "__maintenance_rebooted": {"rebooted": True, **more},
    }


IMAGE: dict[str, t.Any] = {
    **yaml.safe_load((payload.ROOT / "roles/image_builder/defaults/main.yml").read_text()),
    "image_builder_image": "a.qcow2",
    "image_builder_dest": "/srv/images",
    "image_builder_release": "bookworm",
    "__image_builder_there": {"results": [{"stat": {"exists": False}}]},
}
BUILDS = {"user_uid": 0, "architecture": "x86_64", "os_family": "Debian"}
KIWI = {
    **IMAGE,
    "image_builder_builder": "kiwi",
    "image_builder_release": "",
    "image_builder_description": "/srv/kiwi",
    "__image_builder_look": {"stdout_lines": []},
    "__image_builder_kiwi_version": {"rc": 0},
    "__image_builder_descriptions": {"files": [{}]},
    "facts": BUILDS,
}
MISSING = {**IMAGE, "__image_builder_look": {"stdout_lines": ["sfdisk"]}, "facts": BUILDS}
ONLY_H1 = {"pki_controllers": [], "pki_controller": False}
STAYS = [{"name": "web1", "why": "no room"}]
WEB1, WEB2, WEB3 = ({"name": f"web{number}", "state": "running"} for number in (1, 2, 3))
OFF = {"name": "off", "state": "shutdown"}
WAITS = {"name": "web2", "state": "paused", "moving": "other", "moving_from": "open-uuid"}
FAILED = {"results": [{"name": "web1"}, {"name": "web2", "failed": True, "msg": "web2 is busy"}], "msg": "web2 is busy"}
CHANGED: Hosts = {
    "good": ({"virt_changed": {"results": [{"name": "web1"}]}}, ""),
    "idle": ({"virt_changed": {"skipped": True}}, ""),
    "bad": ({"virt_changed": FAILED}, "web2 is busy"),
}
COPY = {
    **yaml.safe_load((payload.ROOT / "roles/backup_copy/defaults/main.yml").read_text()),
    "backup_copy_repository": "/srv/backup",
    "backup_copy_destination": "rest:https://me:secret@nas/copy",
    "backup_copy_password": "word",
    "__backup_copy_does": "open it",
}
COPIED = hashlib.sha1(b"rest:https://me:secret@nas/copy\n").hexdigest()
CASES: list[tuple[str, str, Hosts]] = [
    (
        "roles/backup_copy/tasks/access.yml",
        "Check the settings",
        {
            "good": ({**COPY, "backup_copy_environment": {"KEY": 1}, "backup_copy_check": "5%"}, ""),
            "path": ({**COPY, "backup_copy_repository": "backup"}, "must be an absolute path"),
            "open": ({**COPY, "backup_copy_password": ""}, "backup_copy_password is missing"),
            "name": ({**COPY, "backup_copy_name": "../a"}, "is no name"),
            "line": ({**COPY, "backup_copy_environment": {"KEY": "a\nB=c"}}, "a value of several lines"),
            "part": ({**COPY, "backup_copy_check": "all"}, "set structure, or a part"),
        },
    ),
    (
        "roles/backup_copy/tasks/main.yml",
        "Refuse what is no repository",
        {
            "good": ({**COPY, "__backup_copy_files": {"stdout_lines": ["9 corral-backup.json", "1 a/b/c"]}}, ""),
            "bad": (
                {**COPY, "__backup_copy_files": {"stdout_lines": ["9 a/corral-backup.json"]}},
                "/srv/backup of bad: it is no repository of backups",
            ),
        },
    ),
    (
        "roles/backup_copy/tasks/main.yml",
        "Refuse to begin anew",
        {
            name: ({**COPY, "__backup_copy_asked": True, "__backup_copy_found": found, "__backup_copy_seen": seen}, told)
            for name, found, seen, told in (
                ("first", False, {"stat": {"exists": False}}, ""),
                ("there", True, {"stat": {"exists": True, "checksum": COPIED}}, ""),
                ("moved", False, {"stat": {"exists": True, "checksum": "1" * 40}}, ""),
                (
                    "gone",
                    False,
                    {"stat": {"exists": True, "checksum": COPIED}},
                    "its restic repository was there, and is not any more; mount the filesystem that holds it, or delete /etc",
                ),
            )
        },
    ),
    (
        "roles/backup_copy/tasks/restic.yml",
        "Check that restic has done it",
        {
            "good": ({**COPY, "__backup_copy_told": {"rc": 0, "stderr": ""}}, ""),
            "new": (
                {
                    **COPY,
                    "__backup_copy_may_be_missing": True,
                    "__backup_copy_told": {"rc": 10, "stderr": "Fatal: repository does not exist"},
                },
                "",
            ),
            "gone": (
                {
                    **COPY,
                    "__backup_copy_may_be_missing": True,
                    "__backup_copy_told": {"rc": 1, "stderr": "https://me:secret@nas:404/: refused\nIs there a repository at"},
                },
                "cannot open it on gone: https://nas:404/: refused; mend this",
            ),
            "s3": (
                {
                    **COPY,
                    "__backup_copy_may_be_missing": True,
                    "__backup_copy_told": {
                        "rc": 1,
                        "stderr": "Fatal: unable to open config file: Stat: The specified key does not exist.\nIs there a",
                    },
                },
                "",
            ),
            "azure": (
                {
                    **COPY,
                    "__backup_copy_may_be_missing": True,
                    "__backup_copy_told": {
                        "rc": 1,
                        "stderr": "Fatal: unable to open config file: HEAD https://a/b\n--\nRESPONSE 404: 404 not found",
                    },
                },
                "",
            ),
            "rclone": (
                {
                    **COPY,
                    "__backup_copy_may_be_missing": True,
                    "__backup_copy_told": {
                        "rc": 1,
                        "stderr": 'Fatal: unable to open repository at rclone:a: exec: "rclone": executable file not found',
                    },
                },
                "cannot open it on rclone: Fatal: unable to open repository at rclone:a:",
            ),
            "word": (
                {**COPY, "__backup_copy_told": {"rc": 12, "stderr": '{"code":12,"message":"Fatal: wrong password"}'}},
                "on word: Fatal: wrong password; set backup_copy_password",
            ),
        },
    ),
    (
        "roles/hypervisor/tasks/distribution.yml",
        "Refuse unsupported",
        {
            "good": ({"facts": {"os_family": "RedHat", "distribution": "AlmaLinux"}}, ""),
            "bad": ({"facts": {"os_family": "Archlinux", "distribution": "Arch"}}, "their derivatives, not Arch"),
        },
    ),
    (
        "roles/hypervisor/tasks/distribution.yml",
        "Refuse releases that are too old",
        {
            name: (
                {"facts": {"os_family": family, "distribution": distribution, "distribution_major_version": major}},
                told,
            )
            for name, family, distribution, major, told in (
                ("el9", "RedHat", "AlmaLinux", "9", ""),
                ("fedora", "RedHat", "Fedora", "43", ""),
                ("leap16", "Suse", "openSUSE Leap", "16", ""),
                ("tumbleweed", "Suse", "openSUSE Tumbleweed", "20261101", ""),
                ("debian", "Debian", "Debian", "12", ""),
                ("sid", "Debian", "Debian", "n/a", ""),
                ("el8", "RedHat", "Rocky", "8", "Rocky 8 has the libraries of libvirt for Python 3.6 only"),
                ("leap15", "Suse", "openSUSE Leap", "15", "install release 16 or newer"),
            )
        },
    ),
    (
        "roles/hypervisor/tasks/main.yml",
        "Require KVM",
        {
            "good": ({"hypervisor_require_kvm": True, "__hypervisor_kvm": {"stat": {"exists": True}}}, ""),
            "slow": ({"hypervisor_require_kvm": False, "__hypervisor_kvm": {"stat": {"exists": False}}}, ""),
            "bad": ({"hypervisor_require_kvm": "true", "__hypervisor_kvm": {"stat": {"exists": False}}}, "no /dev/kvm"),
        },
    ),
    (
        "roles/hypervisor/tasks/reader_user.yml",
        "Refuse what is not a public SSH key",
        {"good": (readers(OURS, KEY), ""), "bad": (readers(OURS, KEY, "secret"), "not a public SSH key: secret;")},
    ),
    (
        "roles/hypervisor/tasks/reader_user.yml",
        "Refuse to take over",
        {
            "good": (readers(OURS, KEY), ""),
            "none": (readers(FOREIGN), ""),
            "bad": (readers(FOREIGN, KEY), "user corral-reader on bad was not created by this role"),
        },
    ),
    (
        "roles/hypervisor/tasks/reader_user.yml",
        "Check that the user can read",
        {
            "good": ({**readers(OURS, KEY), "__hypervisor_reading": {"rc": 0}}, ""),
            "bad": ({**readers(OURS, KEY), "__hypervisor_reading": {"rc": 1, "stderr": "denied"}}, "libvirt on bad: denied"),
        },
    ),
    (
        "roles/firewall/tasks/main.yml",
        "Refuse an empty list",
        {
            "good": ({"firewall_ports": ["16514"]}, ""),
            "bad": ({"firewall_sources": [], "firewall_ports": ["16514"]}, "nobody could reach 16514 of bad"),
        },
    ),
    (
        "roles/pki/tasks/main.yml",
        "Refuse names that would admit others",
        {
            "good": ({**ONLY_H1, "pki_hypervisors": ["h1"]}, ""),
            "told": ({**ONLY_H1, "pki_hypervisors": ["web*"], "pki_allowed": ["CN=h1"]}, ""),
            "bad": ({**ONLY_H1, "pki_hypervisors": ["h1", "web*"]}, r"\"web*\" cannot be admitted by name"),
        },
    ),
    (
        "roles/maintenance/tasks/upgrade.yml",
        "Check that its packages can be upgraded",
        {
            "good": ({"maintenance_host": "good", "facts": {"os_family": "Debian", "distribution": "Ubuntu"}}, ""),
            "other": ({"maintenance_host": "good", "facts": {"os_family": "Suse", "distribution": "SLES"}}, ""),
            "bad": ({"maintenance_host": "bad", "facts": {"os_family": "Suse", "distribution": "SLES"}}, "bad: it runs SLES"),
        },
    ),
    (
        "roles/maintenance/tasks/packages.yml",
        "Check that nothing is missing",
        {
            "good": (upgraded(["br0", "br9"]), ""),
            "bare": (upgraded([]), "bare lacks what it had before (bridges: br0; active storage pools: none)"),
            "off": (upgraded(["br0"], active=False), "off lacks what it had before (bridges: none; active storage pools: default)"),
            "long": (
                upgraded(["br0"], before={"bridges": ["br1"], "pools": ["nvme"]}),
                "long lacks what it had before (bridges: br1; active storage pools: nvme)",
            ),
        },
    ),
    (
        "roles/maintenance/tasks/rebalance.yml",
        "Report the guests that stay",
        {
            "good": (rebalanced(WEB1), ""),
            "open": (rebalanced(WAITS), "web2: migrating to other, now paused on open; run the same"),
            "bad": (rebalanced(WEB2, **FAILED), "These guests stay on bad', 'web2: web2 is busy"),
        },
    ),
    (
        "roles/maintenance/tasks/drain.yml",
        "Report the guests that stay",
        {
            "good": (emptied("good"), ""),
            "other": (emptied("good", WAITS), ""),
            "full": (emptied("full", WEB1), "These guests stay on full', 'web1: no room"),
            "open": (emptied("open"), "web2: migrating to other, now paused on other; run the same"),
            "bad": (emptied("bad", WEB2, __maintenance_results=FAILED["results"]), "stay on bad', 'web2: web2 is busy"),
            "came": (emptied("came", WEB3), "stay on came', 'web3: it is running, and was started or migrated there"),
            "off": (emptied("off", OFF, maintenance_running_only=True), ""),
            "gone": (emptied("gone", mark=""), "gone is no longer in the maintenance that this run began with"),
            "new": (emptied("new", mark="another"), "new is no longer in the maintenance that this run began with"),
            "forced": (emptied("forced", WEB1, maintenance_force=True), ""),
            "lost": (emptied("lost", mark="", maintenance_force=True), "lost is no longer in the maintenance"),
        },
    ),
    (
        "roles/maintenance/tasks/gate.yml",
        "Check that the host is empty",
        {
            "good": (gate(), ""),
            "off": (gate(OFF), ""),
            "runs": (gate(OFF, WEB1), "These guests run on runs, which is to be rebooted', 'web1: running', 'runs stays in"),
            "forced": (gate(WEB1, force=True), ""),
            "comes": (gate(WAITS, force=True), "web2: migrating to other, now paused on comes"),
            "gone": (gate(mark="", force=True), "gone is no longer in the maintenance that this run began with"),
            "new": (gate(mark="another"), "new is no longer in the maintenance that this run began with"),
        },
    ),
    (
        "roles/maintenance/tasks/packages.yml",
        "Check that it is that host",
        {
            "good": (rebooted(), ""),
            "stayed": (rebooted(boot="first", skipped=True), ""),
            "same": (rebooted(boot="first"), "same was to reboot and has not"),
            "other": (rebooted(uuid="another"), "other has host UUID another now and had same before"),
        },
    ),
    ("playbooks/tasks/change.yml", "Check that all of them", CHANGED),
    ("playbooks/tasks/state.yml", "Check that all of them", CHANGED),
]  # fmt: skip


@pytest.mark.parametrize(("path", "name", "hosts"), CASES, ids=[f"{path}-{name}" for path, name, _hosts in CASES])
def test_a_host_is_refused_for_what_it_is(path: str, name: str, hosts: Hosts, tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.hosts(hyper={host: variables for host, (variables, _why) in hosts.items()})
    said = run(play, path, name)
    for host, (_variables, why) in hosts.items():
        assert why in said and re.search(rf" {host} : ok=\d [^:]*ignored={int(bool(why))} ", said + " "), said


@pytest.mark.parametrize("options", [(), ("--check",)])
def test_a_console_is_refused_for_all_that_is_wrong_with_its_settings(options: tuple[str, ...], tmp_path: Path) -> None:
    """On the host that they are for. Nothing is said of the packages of an unknown distribution; the key is not shown."""
    role, play = payload.ROOT / "roles/console", Play(tmp_path)
    common = {
        **yaml.safe_load((role / "defaults/main.yml").read_text()),
        "console_hosts": ["good"],
        "console_python_packages": "distribution",
        "__console_python_version": "3.12",
        "facts": {"distribution": "Debian", "distribution_major_version": "12", "os_family": "Debian"},
    }
    wrong = {"console_hosts": ["h9"], "console_policy": [{"who": "bob", "may": "strat"}], "console_key": "s3cret"}
    told = (
        "console_hosts: not names of hosts in the inventory: h9; add them to the inventory, or remove them from "
        "console_hosts; console_policy: rule 1: who must be user:NAME or group:NAME; rule 1: may: there is no action "
        "strat; give console_certificate and console_key together, or neither"
    )
    suse = {"distribution": "openSUSE Leap", "distribution_major_version": "16", "os_family": "Suse"}
    strange = {"distribution": "Plan 9", "distribution_major_version": "4", "os_family": "Plan 9"}
    old = "it needs Debian 12, Ubuntu 22.04, Enterprise Linux 9, openSUSE Leap 15.6, or newer; choose another machine"
    hosts: Hosts = {
        "good": ({}, ""),
        "wrong": (wrong, told),
        "suse": ({"facts": suse}, "console_python_packages: the distribution has no such packages; use auto"),
        "plan9": ({"facts": strange, "__console_python_version": "0.0"}, old),
    }
    play.hosts(hyper={host: {**common, **own} for host, (own, _why) in hosts.items()})
    refused = checked(play, "console", options)
    assert "s3cret" not in play.stdout
    assert refused == {host: why for host, (_own, why) in hosts.items() if why}, play.stdout


@pytest.mark.parametrize("options", [(), ("--check",)])
def test_an_image_is_refused_for_all_that_prevents_its_build(options: tuple[str, ...], tmp_path: Path) -> None:
    """On the host that it is for, and whatever characters the settings have."""
    play = Play(tmp_path)
    programs = "programs are missing (sfdisk), on Debian: apt-get install fdisk"
    description = (
        "/srv/kiwi contains no config.xml, config.kiwi or other .kiwi file on the host: "
        "specify the description's directory"
    )
    kiwi = (
        "kiwi-ng does not run: install kiwi and what its builds need (on Debian: kiwi, kiwi-systemdeps), "
        "or set its path with kiwi=PATH"
    )
    characters = (
        r"""size "'\"\n$(id)" is not valid: set at least 1GiB, such as size=4GiB; """
        r'"a\nb" is not a package name: set names only, such as packages=vim,tmux'
    )
    others = (
        "profiles does not apply to mmdebstrap: omit it, or choose the other builder; customize: /nowhere/x does not "
        "exist on the controller: set the path of a program there with customize=PATH"
    )
    hostile = {"image_builder_size": "'\"\n$(id)", "image_builder_packages": ["a\nb", "vim"]}
    hosts: Hosts = {
        "good": (MISSING, ""),
        "kiwi": (KIWI, ""),
        "user": ({**MISSING, "facts": {**BUILDS, "user_uid": 1000}}, "mounting the image requires root: add --become"),
        "bare": ({**MISSING, "image_builder_install": "false"}, programs),
        "rpm": ({**MISSING, "facts": {**BUILDS, "os_family": "RedHat"}}, programs),
        "empty": ({**KIWI, "__image_builder_descriptions": {"files": []}}, description),
        "none": ({**KIWI, "__image_builder_kiwi_version": {"rc": 2}}, kiwi),
        "hostile": ({**MISSING, **hostile}, characters),
        "other": (
            {**MISSING, "image_builder_customize": "/nowhere/x", "image_builder_profiles": ["small"]},
            others,
        ),
    }
    play.hosts(hyper={host: variables for host, (variables, _why) in hosts.items()})
    refused = checked(play, "image_builder", options)
    assert refused == {host: why for host, (_variables, why) in hosts.items() if why}, play.stdout


MINE = {"maintenance_moves": [{"name": "web1", "source": "h1", "dest": "h2"}]}
BRINGS = {
    "virt_told": {
        "results": [{"images": [{"name": "a.qcow2", "pool": "default", "checksum": "sha256:0", "content": "a"}]}]
    },
    "virt_source": "h2",
    "virt_dest": "h1",
}
CHOSEN = {"virt_chosen": {"domains": {"h1": [{"name": "web1", "state": "running"}]}}}


@pytest.mark.parametrize(
    ("path", "name", "variables"),
    [
        ("roles/maintenance/tasks/ask.yml", "Check the migrations", MINE),
        ("roles/maintenance/tasks/move.yml", "Move the guests", MINE),
        ("playbooks/tasks/move.yml", "Import the images", BRINGS),
        ("playbooks/tasks/change.yml", "Change the guests", CHOSEN),
        ("playbooks/tasks/state.yml", "Bring the guests", CHOSEN),
    ],
)
def test_guests_that_nobody_answers_for_are_red(
    path: str, name: str, variables: dict[str, t.Any], tmp_path: Path
) -> None:
    """What is told later are results, and here are none. Only their host is asked."""
    play = Play(tmp_path)
    play.hosts(
        hyper={host: {**variables, "maintenance_options": {}, "maintenance_at_once": 1} for host in ("h1", "h2")}
    )
    said = run(play, path, name, module_defaults={"group/corral.virt.virt": {"uri": "test:///nowhere.xml"}})
    assert re.search(r" h1 : .*? ignored=1 h2 : .*? skipped=1 .*? ignored=0", said), said


@pytest.mark.parametrize(
    ("role", "entry"), [("guests", "main"), ("maintenance", "drain"), ("maintenance", "rebalance")]
)
def test_hypervisors_are_asked_together(role: str, entry: str, tmp_path: Path) -> None:
    """In a play with serial, each batch would place guests without knowing the others."""
    play = Play(tmp_path)
    play.hosts(hyper={"h1": {}, "h2": {}}, other={"h3": {}})
    included = {"ansible.builtin.include_role": {"name": f"corral.virt.{role}", "tasks_from": entry}}
    code = play.ends(included, hosts="hyper:other", serial=1, vars={"maintenance_host": "h1"}, options=["--check"])
    said = " ".join(play.stdout.split())
    assert "Placement needs all hypervisors at the same time, and h2 cannot be queried: this play has serial" in said
    assert code and "Read the hypervisor" not in said


@pytest.mark.parametrize(
    ("entry", "host", "options", "variables", "told"),
    [
        ("drain", "h9", (), {}, "Specify the hypervisor: -e host=NAME, one of h1, h2 (given: h9)"),
        ("undrain", "h9", (), {}, "Specify the hypervisor: -e host=NAME, one of h1, h2 (given: h9)"),
        ("drain", "h1", ("--limit", "h1"), {}, "h2 cannot be queried, because --limit excludes it"),
        ("drain", "h1", ("--limit", "h1"), {"maintenance_gone": ["h2"]}, ""),
        ("drain", "h2", (), {}, "h2 was not reached: nothing can be done with it until it is back"),
    ],
)
def test_a_host_that_cannot_be_drained(
    entry: str, host: str, options: tuple[str, ...], variables: dict[str, t.Any], told: str, tmp_path: Path
) -> None:
    """h2 is dead."""
    play = Play(tmp_path)
    play.hosts(hyper={"h1": {}, "h2": {"ansible_connection": "ssh", "ansible_ssh_executable": "/bin/false"}})
    included = {"ansible.builtin.include_role": {"name": "corral.virt.maintenance", "tasks_from": entry}}
    code = play.ends(
        included,
        options=["--check", *options],
        vars={"maintenance_host": host, **variables},
        module_defaults={"group/corral.virt.virt": {"uri": HOST_URI}},
    )
    said = " ".join(play.stdout.split())
    assert (code or not told) and told in said and ("Choose where its guests go" in said) == (not told)


def test_a_host_is_marked_only_where_its_libvirt_is(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.hosts(hyper={"h1": {"virt_host": {"host": {"bridges": None}}}, "h2": {"virt_host": {"host": {"bridges": []}}}})
    tasks = yaml.safe_load((payload.ROOT / "roles/maintenance/tasks/drain.yml").read_text())
    [together] = [task for task in tasks if "block" in task]
    names = [task["name"] for task in together["block"]]
    check = together["block"][names.index("Mark the host") - 1]
    assert play.ends(check, vars={"maintenance_host": "h2"}) == 0
    assert play.ends(check, vars={"maintenance_host": "h1"}) != 0
    assert "Cannot drain h1: virt_uri names libvirt on another machine" in " ".join(play.stdout.split())


def test_only_the_host_that_is_drained_is_marked(tmp_path: Path) -> None:
    """By who marks it first, with what it has, and until it is undrained."""
    play = Play(tmp_path)
    here = {"__maintenance_mark": f"{tmp_path}/{{{{ inventory_hostname }}}}.json", "maintenance_group": "hyper"}
    pools = [{"name": "default", "active": True}, {"name": "off", "active": False}]
    found = {"host": {"bridges": ["br0"], "pools": pools, "maintenance": None, "boot_id": "b1"}}
    play.hosts(hyper={"h1": {"virt_host": found}, "h2": {"virt_host": found}})
    tasks = yaml.safe_load((payload.ROOT / "roles/maintenance/tasks/drain.yml").read_text())
    [together] = [task for task in tasks if "block" in task]
    [mark] = [task for task in together["block"] if task["name"] == "Mark the host"]
    undrain = {"ansible.builtin.import_tasks": str(payload.ROOT / "roles/maintenance/tasks/undrain.yml")}
    files = [str(payload.ROOT / f"roles/maintenance/{folder}/main.yml") for folder in ("defaults", "vars")]

    def marks(task: dict[str, t.Any], **variables: str) -> dict[str, t.Any]:
        more: t.Any = {"vars_files": files, "module_defaults": {"group/corral.virt.virt": {"uri": HOST_URI}}}
        assert play.ends(task, options=["-e", json.dumps({**here, **variables})], **more) == 0, play.stdout
        return {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("h?.json")}

    first = marks(mark, maintenance_host="h2", maintenance_reason="new fan")
    made = {name: first["h2"].pop(name) for name in ("since", "id")}
    had = {"bridges": ["br0"], "pools": ["default"], "boot": "b1"}
    assert first == {"h2": {**had, "reason": "new fan", "by": "drain", "host": "h2"}} and len(made["id"]) == 16
    first["h2"] |= made
    assert marks(mark, maintenance_host="h2", maintenance_reason="upgrade") == first
    assert marks(undrain, maintenance_host="h1") == first
    assert not marks(undrain, maintenance_host="h2")
