"""A release, in a clone, from its signed tag to the archive that is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.deep]


def test_a_release_is_signed_and_can_be_installed(tmp_path: Path) -> None:
    home, clone = tmp_path / "g", tmp_path / "clone"
    home.mkdir(mode=0o700)
    author = {f"GIT_{who}_{what}": "ada@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **author, "GNUPGHOME": str(home)}

    def run(*argv: str | Path, ok: bool = True) -> str:
        ended = subprocess.run(argv, check=False, cwd=clone, env=environment, capture_output=True, text=True)
        assert (ended.returncode == 0) == ok, ended.stderr
        return ended.stdout + ended.stderr

    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "ada@example.com", "ed25519", "sign", "1d")
    run("git", "config", "user.signingkey", "ada@example.com")
    release = (sys.executable, clone / "tests/tools/release.py")
    try:
        assert "no semantic version" in run(*release, "one", ok=False)
        assert "tag the commit" in run(*release, "--check", "v1.0.0", ok=False)
        run(*release, "1.0.0")
        assert "Good signature" in run("git", "verify-tag", "v1.0.0")
        assert "the tag v1.0.0 exists" in run(*release, "1.0.0", ok=False)
        run(*release, "--check", "v1.0.0")
    finally:
        run("gpgconf", "--kill", "all")
    notes = (clone / "CHANGELOG.rst").read_text()
    assert "v1.0.0\n======" in notes and "virt_migrate" in notes
    assert {path.name for path in (clone / "changelogs/fragments").glob("*.yml")} == set()
    out = clone / "build/release"
    subprocess.run(["sha256sum", "--check", "corral-virt-1.0.0.tar.gz.sha256"], cwd=out, check=True)
    assert "GPL-3.0-or-later" in (out / "corral-virt-1.0.0.spdx").read_text()
    parts = json.loads((out / "corral-virt-1.0.0.cdx.json").read_text())
    assert parts["metadata"]["component"]["version"] == "1.0.0"
    assert {"ansible-core", "libvirt-python", "lxml", "novnc"} <= {each["name"] for each in parts["components"]}
    run(
        "ansible-galaxy",
        "collection",
        "install",
        "--offline",
        "--force",
        "-p",
        tmp_path / "there",
        out / "corral-virt-1.0.0.tar.gz",
    )
    assert (tmp_path / "there/ansible_collections/corral/virt/plugins/modules/virt_domain.py").exists()
