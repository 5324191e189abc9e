"""The Python packages that a machine gets, and the packages of distributions that it needs beside them."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.roles.console.files import wheels
from ansible_collections.corral.virt.roles.console.files.wheels import Machine, Problem
from ansible_collections.corral.virt.tests.tools import console_pins

ROLE = Path(wheels.__file__).parents[1]
SYSTEMS: dict[str, dict[str, t.Any]] = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__console_systems"]
ABI3 = "thing-1.0-cp311-abi3-manylinux_2_28_x86_64.whl"
CP312 = "thing-1.0-cp312-cp312-manylinux2014_aarch64.manylinux_2_17_aarch64.whl"
HERE = Machine("3.12", "x86_64")


@pytest.mark.parametrize(
    ("file", "python", "machine", "fits"),
    [
        ("thing-1.0-py3-none-any.whl", "3.14", "riscv64", True),
        ("thing-1.0-py2.py3-none-any.whl", "3.11", "x86_64", True),
        ("thing-1.0.tar.gz", "3.11", "x86_64", True),
        (ABI3, "3.11", "x86_64", True),
        (ABI3, "3.13", "x86_64", True),
        (ABI3, "3.10", "x86_64", False),
        (ABI3, "3.11", "aarch64", False),
        (CP312, "3.12", "aarch64", True),
        (CP312, "3.13", "aarch64", False),
        ("thing-1.0-cp312-cp312-manylinux_2_39_x86_64.whl", "3.12", "x86_64", False),
        ("thing-1.0-cp312-cp312-musllinux_1_2_x86_64.whl", "3.12", "x86_64", False),
    ],
)
def test_a_file_fits_some_machines(file: str, python: str, machine: str, fits: bool) -> None:
    assert wheels._fits(file, python, machine) == fits


@pytest.mark.parametrize("python", console_pins.PYTHONS)
@pytest.mark.parametrize("processor", console_pins.MACHINES)
def test_all_is_pinned_for_each_machine(python: str, processor: str) -> None:
    names = {pin["package"] for pin in Machine(python, processor).pins()}
    assert names >= set(console_pins.WHEELS) - {"setuptools"} and "libvirt-python" not in names
    built = {pin["package"] for pin in Machine(python, processor, built=True).pins()}
    assert built - names == {"setuptools", "libvirt-python"}
    distribution = [pin["package"] for pin in Machine(python, processor, distribution=True).pins()]
    assert distribution == ["ansible-core", "ansible-runner"]


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two packages, one of them a source package."""
    pins = []
    for package, file in (("thing", ABI3), ("libvirt-python", "libvirt_python-1.0.tar.gz")):
        (tmp_path / file).write_bytes(package.encode())
        digest = hashlib.sha256(package.encode()).hexdigest()
        pins.append({"package": package, "version": "1.0", "python": ["3.12"], "files": {file: digest}})
    (tmp_path / "pins.json").write_text(json.dumps(pins))
    monkeypatch.setattr(wheels, "_PINS", tmp_path / "pins.json")
    return tmp_path


def test_pip_is_told_the_checksums(pinned: Path) -> None:
    packed = wheels.wheels(pinned, Machine("3.12", "x86_64", built=True), fetch=False)
    assert packed == wheels.wheels(pinned, Machine("3.12", "x86_64", built=True), fetch=False)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        texts = {name: t.cast(t.IO[bytes], archive.extractfile(name)).read().decode() for name in archive.getnames()}
    assert texts[ABI3] == "thing"
    assert texts["requirements.txt"] == f"thing==1.0 --hash=sha256:{hashlib.sha256(b'thing').hexdigest()}\n"
    assert texts["built.txt"].startswith("libvirt-python==1.0 --hash=sha256:")


def test_what_is_missing_is_named_with_the_command(pinned: Path) -> None:
    (pinned / ABI3).unlink()
    with pytest.raises(Problem, match=r"lacks thing-1\.0.*: pip download .*--python-version 3\.12 .* thing==1\.0"):
        wheels.wheels(pinned, HERE, fetch=False)


def test_other_content_is_refused(pinned: Path) -> None:
    (pinned / ABI3).write_bytes(b"other")
    for fetch in (False, True):
        with pytest.raises(Problem, match=r"is not thing 1\.0: its checksum is .*; remove the file"):
            wheels.wheels(pinned, HERE, fetch=fetch)


def test_a_machine_that_there_is_no_file_for_is_refused(pinned: Path) -> None:
    with pytest.raises(Problem, match=r"no thing for Python 3\.12 on riscv64"):
        wheels.wheels(pinned, Machine("3.12", "riscv64"), fetch=True)


def test_missing_files_are_fetched_by_checksum(pinned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (pinned / ABI3).unlink()

    def pip(words: list[str], **_how: object) -> subprocess.CompletedProcess[str]:
        assert "--require-hashes" in words and not [word for word in words if "index" in word]
        requirements = Path(words[words.index("--requirement") + 1]).read_text()
        assert requirements == f"thing==1.0 --hash=sha256:{hashlib.sha256(b'thing').hexdigest()}\n"
        Path(words[words.index("--dest") + 1], ABI3).write_bytes(b"thing")
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    assert b"thing" in wheels.wheels(pinned, HERE, fetch=True) and (pinned / ABI3).exists()


def test_a_python_of_a_distribution_is_pinned_and_its_packages_are_of_one_kind() -> None:
    for name, system in SYSTEMS.items():
        version = system["python"].removeprefix("python")
        assert version == "3" or version in console_pins.PYTHONS, name
        development = [each for each in system["packages"] if each.endswith(("-dev", "-devel"))]
        assert bool(development) == system["build"] == ("gcc" in system["packages"]), name
        # With another Python the distribution's binding is of no use.
        assert (version == "3") != system["build"], name
        assert any("libvirt" in each for each in system["packages"]), name
