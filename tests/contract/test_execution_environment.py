"""The image in which AWX runs jobs: its definition, what it installs, and a job that runs with that as AWX runs one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from ansible_collections.corral.virt.tests.contract.test_inventory import guest
from ansible_collections.corral.virt.tests.golden.case import GOLDEN
from ansible_collections.corral.virt.tests.tools import payload

FILE = payload.ROOT / "extensions/execution-environment/execution-environment.yml"
DEFINITION = yaml.safe_load(FILE.read_text())
DEPENDENCIES = DEFINITION["dependencies"]
PYTHON = [
    *DEPENDENCIES["python"],
    DEPENDENCIES["ansible_core"]["package_pip"],
    DEPENDENCIES["ansible_runner"]["package_pip"],
]


def requirements(name: str) -> dict[str, list[Requirement]]:
    """Of a file of this repository, by package."""
    found: dict[str, list[Requirement]] = {}
    for line in (payload.ROOT / name).read_text().splitlines():
        if re.match(r"[A-Za-z]", line):
            found.setdefault(Requirement(line).name.lower(), []).append(Requirement(line))
    return found


def test_versions_are_those_that_are_tested() -> None:
    """From the oldest one that the collection takes, to the next that nobody has tried."""
    wanted = {requirement.name.lower(): requirement for requirement in map(Requirement, PYTHON)}
    tested, oldest = requirements("requirements-dev.txt"), requirements("requirements.txt")
    assert oldest.keys() <= wanted.keys()
    for name, requirement in wanted.items():
        bounds = {each.operator: each.version for each in requirement.specifier}
        assert bounds.keys() == {">=", "<"}, requirement
        for [least] in [oldest[name]] if name in oldest else []:
            assert str(least.specifier) == f">={bounds['>=']}"
        for pinned in tested[name]:
            [pin] = pinned.specifier
            assert requirement.specifier.contains(pin.version), pinned
    core = yaml.safe_load((payload.ROOT / "meta/runtime.yml").read_text())["requires_ansible"]
    assert f"ansible-core{core}," in DEPENDENCIES["ansible_core"]["package_pip"]


def test_it_names_this_collection_and_no_registry() -> None:
    galaxy = yaml.safe_load((payload.ROOT / "galaxy.yml").read_text())
    [collection] = DEPENDENCIES["galaxy"]["collections"]
    assert collection["name"] == f"{galaxy['namespace']}.{galaxy['name']}"
    assert collection["version"].startswith(f">={galaxy['version']},")
    assert re.fullmatch(r"[a-z]+:[0-9.]+", DEFINITION["images"]["base_image"]["name"])


def test_what_the_collection_asks_of_an_image_is_there() -> None:
    asked = yaml.safe_load((payload.ROOT / "meta/execution-environment.yml").read_text())["dependencies"]
    assert asked == {"python": "requirements.txt", "system": "bindep.txt"}
    for name in asked.values():
        assert (payload.ROOT / name).exists()


@pytest.mark.slow
def test_ansible_builder_takes_it(tmp_path: Path) -> None:
    builder = Path(sys.executable).parent / "ansible-builder"
    words = [
        str(builder),
        "create",
        "--file",
        str(FILE),
        "--context",
        str(tmp_path),
        "--output-filename",
        "Containerfile",
    ]
    done = subprocess.run(words, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "Containerfile").read_text()
    assert 'ARG EE_BASE_IMAGE="almalinux:9"' in text and "FROM $EE_BASE_IMAGE" in text
    assert 'ARG PYCMD="/usr/bin/python3.12"' in text and "config-manager --set-enabled crb" in text
    assert (tmp_path / "_build/requirements.txt").read_text().split() == DEPENDENCIES["python"]
    assert (tmp_path / "_build/bindep.txt").read_text().splitlines() == DEPENDENCIES["system"]


def job(place: Path, programs: Path) -> tuple[int, str]:
    """The end and the output of a job as AWX runs it: a private directory, an empty home, variables from a survey."""
    python = str(programs / "python")
    host = place / "h1.xml"
    guests = guest(1, "web1") + guest(2, "db1", "shutdown")
    host.write_text((GOLDEN / "host.xml").read_text().replace("web1-", "other-").replace("</node>", f"{guests}</node>"))
    data = place / "data"
    for name in ("env", "inventory"):
        (data / name).mkdir(parents=True)
    (place / "home").mkdir()
    (data / "project").symlink_to(payload.ROOT / "examples/project")
    variables = {"ansible_connection": "local", "ansible_python_interpreter": python, "virt_uri": f"test://{host}"}
    (data / "inventory/hosts.json").write_text(json.dumps({"hyper": {"hosts": {"h1": variables}}}))
    (data / "env/extravars").write_text(json.dumps({"awx_job_id": 7, "tower_job_id": 7, "format": "json"}))
    environment = {
        "HOME": str(place / "home"),
        "ANSIBLE_COLLECTIONS_PATH": str(payload.ROOT / ".cache"),
        "ANSIBLE_HOST_KEY_CHECKING": "False",
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    (data / "env/envvars").write_text(json.dumps(environment))
    words = [str(programs / "ansible-runner"), "run", str(data), "--playbook", "playbooks/list.yml", "--ident", "7"]
    clean = {"PATH": environment["PATH"], "HOME": environment["HOME"], "LANG": "C.UTF-8"}
    done = subprocess.run(words, check=False, env=clean, capture_output=True, text=True, timeout=1200)
    events = sorted((data / "artifacts/7/job_events").glob("*.json"))
    return done.returncode, "".join(
        t.cast(str, json.loads(path.read_text())["stdout"]) for path in events
    ) or done.stderr


@pytest.mark.slow
def test_a_job_of_ansible_runner(tmp_path: Path) -> None:
    code, output = job(tmp_path, Path(sys.executable).parent)
    assert code == 0, output
    assert "web1" in output and "db1" in output


@pytest.mark.slow
@pytest.mark.deep
def test_a_job_with_what_the_image_installs(tmp_path: Path) -> None:
    """In the versions that the tests have; without anything else of theirs."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    programs = tmp_path / "venv/bin"
    pins = tmp_path / "pins.txt"
    dev = (payload.ROOT / "requirements-dev.txt").read_text().splitlines()
    pins.write_text("\n".join(line for line in dev if not line.startswith("-")))
    pip = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    subprocess.run([*pip, *PYTHON, "-c", str(pins)], check=True)
    code, output = job(tmp_path, programs)
    assert code == 0 and "web1" in output, output
    words = [str(programs / "ansible-doc"), "-t", "inventory", "corral.virt.virt"]
    here = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(payload.ROOT / ".cache")}
    shown = subprocess.run(words, check=False, env=here, capture_output=True, text=True)
    assert shown.returncode == 0 and "CORRAL_VIRT_KEY_FILE" in shown.stdout, shown.stderr
    imports = "import libvirt, lxml.etree, cryptography.x509, ansible_runner"
    subprocess.run([str(programs / "python"), "-c", imports], check=True)
