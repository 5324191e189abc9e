"""A seed image, written by a library or by a program of the host; the judges are xorriso and isoinfo."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Unsupported
from ansible_collections.corral.virt.plugins.module_utils._seed import files_seed

KEYS = {"ssh_keys": {"ed25519_private": "-----BEGIN\nx\n", "ed25519_public": "ssh-ed25519 AAAA"}}
FILES = {
    "meta-data": "instance-id: a\r\n",
    "user-data": f"#cloud-config\n{json.dumps({'password': 'ä'})}\n",
    "network-config": "version: 2\n",
    "vendor-data": f"#cloud-config\n{json.dumps(KEYS)}\n",
}
WRITERS = [
    pytest.param(name, marks=pytest.mark.skipif(not found, reason=f"{name} is not installed"))
    for name, found in [
        ("pycdlib", importlib.util.find_spec("pycdlib")),
        *((name, shutil.which(name)) for name in ("xorriso", "genisoimage")),
    ]
]


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The only one that the host has."""
    only = str(request.param)
    if only != "pycdlib":
        monkeypatch.setattr(files_seed, "pycdlib", None)
        which, found = shutil.which, {"xorriso": {"xorriso"}, "genisoimage": {"genisoimage", "isoinfo"}}[only]
        monkeypatch.setattr(shutil, "which", lambda name: which(name) if name in found else None)
    return only


@pytest.mark.skipif(not shutil.which("isoinfo"), reason="isoinfo is not installed")
def test_a_seed_is_read_as_it_was_written(writer: str, tmp_path: Path) -> None:
    image = tmp_path / "seed.iso"
    data = files_seed.iso(FILES)
    image.write_bytes(data.ljust(-(-len(data) // 1024**2) * 1024**2, b"\0"))

    def told(*words: str) -> bytes:
        return subprocess.run(["isoinfo", "-i", image, *words], check=True, capture_output=True).stdout

    assert b"Volume id: cidata\n" in told("-d")
    for names in ("-J", "-R"):
        assert sorted(told(names, "-f").decode().split()) == sorted(f"/{name}" for name in FILES)
        for name, text in FILES.items():
            assert told(names, "-x", f"/{name}") == text.encode()
    assert files_seed.host_key_in(image.read_bytes()) == ("-----BEGIN\nx\n", "ssh-ed25519 AAAA")
    assert files_seed.host_key_in(image.read_bytes()[:4096]) is None
    assert files_seed.host_key_in(files_seed.iso({"vendor-data": "#!/bin/sh\n"})) is None


def test_without_a_writer_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_seed, "pycdlib", None)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(Unsupported, match="install python3-pycdlib or xorriso on this host"):
        files_seed.iso(FILES)
