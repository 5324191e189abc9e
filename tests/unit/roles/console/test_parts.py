"""Settings, certificates and packages of the console."""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import typing as t
import zipfile
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.roles.console.files import pack_console, wheels
from ansible_collections.corral.virt.roles.console.files.corral_console import authority, watch
from ansible_collections.corral.virt.roles.console.files.corral_console.config import BadConfig, Config
from ansible_collections.corral.virt.roles.console.files.corral_console.store import Store
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until

GOOD: dict[str, t.Any] = {
    "names": ["console.example"],
    "hosts": {"hyper1": {"uri": "test:///default", "relay": ["ssh", "hyper1"]}},
    "policy_socket": "/run/corral-console-jobs/socket",
    "state": "/var/lib/corral-console",
    "libraries": "/usr/lib/corral-console/libraries.zip",
    "certificate": "/etc/corral-console/server.crt",
    "key": "/etc/corral-console/server.key",
}


def load(folder: Path, given: object) -> Config:
    path = folder / "config.json"
    path.write_text(given if isinstance(given, str) else json.dumps(given))
    return Config.load(path)


def test_settings_are_read(tmp_path: Path) -> None:
    config = load(tmp_path, {**GOOD, "port": 443})
    assert (config.port, config.hosts["hyper1"].relay, config.names) == (443, ("ssh", "hyper1"), ("console.example",))
    assert config.policy_socket == Path("/run/corral-console-jobs/socket")


def test_all_that_is_wrong_with_settings_is_said(tmp_path: Path) -> None:
    wrong = {**GOOD, "port": "443", "prot": 1, "streams": 0, "hosts": {"hyper1": {}}, "key": ""}
    del wrong["policy_socket"]
    with pytest.raises(BadConfig) as error:
        load(tmp_path, wrong)
    said = str(error.value)
    for part in (
        "policy_socket is required",
        "prot is not",
        "port must be of type int",
        "streams must be",
        "hyper1 has no",
        "key is required",
    ):
        assert part in said
    for text in ("", "[]", "{"):
        with pytest.raises(BadConfig):
            load(tmp_path, text)
    with pytest.raises(BadConfig):
        Config.load(tmp_path / "missing")


NAMES = ["console.example", "192.0.2.1"]


def verified(folder: Path, name: str) -> bool:
    flag = "-verify_ip" if name[0].isdigit() else "-verify_hostname"
    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", flag, name, "-CAfile", "ca.crt"]
    return subprocess.run([*command, "server.crt"], cwd=folder, check=False, capture_output=True).returncode == 0


def test_a_certificate_is_made_once_and_openssl_takes_it(tmp_path: Path) -> None:
    assert authority.converge(tmp_path, NAMES, write=False) and not list(tmp_path.iterdir())
    assert len(authority.converge(tmp_path, NAMES, write=True)) == 2
    assert authority.converge(tmp_path, NAMES, write=True) == []
    assert all(verified(tmp_path, name) for name in NAMES) and not verified(tmp_path, "other.example")
    assert {oct(path.stat().st_mode & 0o777) for path in tmp_path.glob("*.key")} == {"0o600"}


def test_a_certificate_is_renewed_and_its_authority_stays(tmp_path: Path) -> None:
    authority.converge(tmp_path, NAMES, write=True)
    ca = (tmp_path / "ca.crt").read_bytes()
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=380)
    assert len(authority.converge(tmp_path, NAMES, write=True, now=later)) == 1
    assert authority.converge(tmp_path, [*NAMES, "other.example"], write=True) == [
        "create a certificate for console.example, 192.0.2.1, other.example"
    ]
    assert verified(tmp_path, "other.example") and (tmp_path / "ca.crt").read_bytes() == ca
    (tmp_path / "server.key").unlink()
    assert authority.converge(tmp_path, [*NAMES, "other.example"], write=False)


def test_a_certificate_of_a_time_that_is_still_to_come_is_replaced(tmp_path: Path) -> None:
    """It was made while the clock was wrong."""
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=400)
    authority.converge(tmp_path, NAMES, write=True)
    authority.converge(tmp_path, ["other.example"], write=True, now=later)
    assert not verified(tmp_path, "other.example")
    assert authority.converge(tmp_path, ["other.example"], write=False)
    assert len(authority.converge(tmp_path, ["other.example"], write=True)) == 1
    assert verified(tmp_path, "other.example") and authority.converge(tmp_path, ["other.example"], write=True) == []


@pytest.mark.parametrize("write", [False, True])
def test_an_authority_is_not_replaced_because_the_clock_is_behind(tmp_path: Path, write: bool) -> None:
    """Which of the two times is wrong, nobody can tell."""
    authority.converge(tmp_path, NAMES, write=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    earlier = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=400)
    for names in (NAMES, ["other.example"]):
        with pytest.raises(
            BadConfig, match=r"valid only from .* set the clock of this machine, or, .* remove that file"
        ):
            authority.converge(tmp_path, names, write=write, now=earlier)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert authority.converge(tmp_path, NAMES, write=True) == [], "when it is right again"


def test_a_run_that_was_killed_between_key_and_certificate_is_made_up_for(tmp_path: Path) -> None:
    authority.converge(tmp_path, NAMES, write=True)
    earlier = (tmp_path / "server.crt").read_bytes()
    (tmp_path / "server.crt").unlink()
    authority.converge(tmp_path, NAMES, write=True)
    (tmp_path / "server.crt").write_bytes(earlier)  # with the newer key
    assert len(authority.converge(tmp_path, NAMES, write=False)) == len(authority.converge(tmp_path, NAMES, write=True))
    assert verified(tmp_path, NAMES[0])
    for file in ("pkey -pubout -in server.key", "x509 -pubkey -noout -in server.crt"):
        subprocess.run(f"openssl {file} >>keys", shell=True, cwd=tmp_path, check=True)
    first, second = (tmp_path / "keys").read_text().split("-----END PUBLIC KEY-----")[:2]
    assert first.strip() == second.strip()


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(
    ("content", "told"), [(None, "is missing"), ("other", "is not the key of"), ("", "is not the")]
)
def test_an_authority_that_browsers_trust_is_not_replaced_because_its_key_is_lost(
    tmp_path: Path, content: str | None, told: str, write: bool
) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        authority.converge(folder, NAMES, write=True)
    (tmp_path / "a/ca.key").unlink()
    if content is not None:
        (tmp_path / "a/ca.key").write_text((tmp_path / "b/ca.key").read_text() if content else "")
    assert authority.converge(tmp_path / "a", NAMES, write=write) == [], "it is needed only to sign"
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    with pytest.raises(BadConfig, match=told):
        authority.converge(tmp_path / "a", ["other.example"], write=write)
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}


def test_hosts_that_fail_are_asked_less_and_less() -> None:
    waits = [watch.backoff_s(failures, 1.0) for failures in range(12)]
    assert waits == sorted(waits) and waits[0] == 1 and waits[-1] == 60
    assert watch.backoff_s(3, 0.0) == 6 and watch.backoff_s(10**6, 1.0) == 60


CHANGED = (
    "Cannot recv data: @@@@@\r\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n"
    "The fingerprint for the ED25519 key sent by the remote host is\r\nSHA256:wj2Fn+/q.\r\n"
    "remove with:\r\n  ssh-keygen -f '/etc/corral-console/ssh/known_hosts' -R 'a'\r\nHost key verification failed.: x"
)
AGAIN = "run the playbook console_server again"


@pytest.mark.parametrize(
    ("told", "parts"),
    [
        (CHANGED, ["not the one that Ansible saw, but ED25519 SHA256:wj2Fn+/q; ", AGAIN, "who answers in its place"]),
        ("No ED25519 host key is known for a.\r\nHost key verification failed.: x", ["key is not known; ", AGAIN]),
        (
            "corral-viewer@a: Permission denied (publickey,password).: x",
            ["does not accept the console's SSH key", AGAIN],
        ),
        ("cannot connect to a: no answer within 30 s", ["no answer within 30 s"]),
    ],
)
def test_a_host_whose_keys_changed_tells_what_mends_it(
    told: str, parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that libvirt does not run there, nor to edit a file that the role writes."""

    def opened(*_uri: str, **_how: bool) -> t.NoReturn:
        raise Failed(f"{told}; is the libvirt daemon installed?")

    monkeypatch.setattr(watch, "opened", opened)
    store = Store()
    watcher = watch.Watcher("a", "qemu+ssh://a/system", store)
    watcher.start()
    until(lambda: (store.get("host/a") or {})["state"] == "unreachable")
    watcher.stop()
    reason = store.get("host/a")["reason"]  # type: ignore[index]
    assert all(part in reason for part in parts)
    assert ("is the libvirt daemon" in reason) == (AGAIN not in parts) and "ssh-keygen" not in reason


def test_the_program_runs_from_one_file(tmp_path: Path) -> None:
    """Alone, as on a host without the collection."""
    path = tmp_path / "console.pyz"
    path.write_bytes(pack_console.program())
    command = [sys.executable, "-I", "console.pyz", "certificate", "--check", ".", "console.example"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert json.loads(done.stdout)["changed"] is True
    with zipfile.ZipFile(path) as archive:
        assert "corral_console/static/index.html" in archive.namelist()
    assert pack_console.program() == path.read_bytes()


def test_the_web_process_needs_no_action_catalogue(tmp_path: Path) -> None:
    """Its program has no part of the collection that only the controller has."""
    path = tmp_path / "console.pyz"
    path.write_bytes(pack_console.program())
    program = """import sys; sys.path.insert(0, "console.pyz")
from corral_console import policy, view, web
rule = {"who": "user:a", "may": "create", "guests": "web*", "at_most": {"disks.size": "1GiB"}, "arguments": {"disks": "*"}}
seen = view.View(policy.Who("a"), policy.parsed([rule]))
print([seen.guest({"name": name, "host": "hyper1"}) for name in ("web1", "db1")])
"""
    command = [sys.executable, "-I", "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "[True, False]\n"


def package(folder: Path, pin: dict[str, t.Any], members: dict[str, bytes]) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    (folder / "some-thing-1.0.tgz").write_bytes(made.getvalue())
    digest = hashlib.sha512(made.getvalue()).digest()
    pin["integrity"] = "sha512-" + base64.b64encode(digest).decode()


@pytest.fixture
def pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, t.Any]:
    """The only package, in place of the real ones."""
    pinned = {
        "directory": "thing",
        "package": "@some/thing",
        "version": "1.0",
        "files": {"lib/": "lib/", "L": "LICENSE"},
    }
    monkeypatch.setattr(json, "loads", lambda _text: [pinned])
    return pinned


def test_files_of_a_package_are_taken(tmp_path: Path, pin: dict[str, t.Any]) -> None:
    package(
        tmp_path,
        pin,
        {"package/lib/a.js": b"1", "package/lib/../../../../evil": b"2", "package/L": b"3", "package/x": b"4"},
    )
    with zipfile.ZipFile(io.BytesIO(pack_console.libraries(tmp_path, fetch=False))) as archive:
        assert archive.namelist() == ["thing/LICENSE", "thing/lib/a.js"]


def test_a_package_with_other_content_is_refused(tmp_path: Path, pin: dict[str, t.Any]) -> None:
    package(tmp_path, pin, {"package/lib/a.js": b"1", "package/L": b"3"})
    pin["integrity"] = "sha512-other"
    with pytest.raises(wheels.Problem, match=r"is not @some/thing 1\.0"):
        pack_console.libraries(tmp_path, fetch=True)


def test_a_package_that_is_missing_is_told(tmp_path: Path, pin: dict[str, t.Any]) -> None:
    with pytest.raises(wheels.Problem, match=r"npm pack @some/thing@1\.0"):
        pack_console.libraries(tmp_path, fetch=False)
    package(tmp_path, pin, {"package/L": b"3"})
    with pytest.raises(wheels.Problem, match="has no lib/"):
        pack_console.libraries(tmp_path, fetch=False)


def test_without_npm_the_error_says_what_to_do(
    tmp_path: Path, pin: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(wheels.Problem, match="console_libraries"):
        pack_console.libraries(tmp_path, fetch=True)


def packed(target: Path, project: Path) -> dict[str, str]:
    """What a run makes for its machine: names and checksums."""
    packages, inputs = target.parent / "packages", ["--project", str(project), "--project-file", "hosts"]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        given = [str(target), str(packages), *inputs, "--python", "3.11", "--processor", "x86_64"]
        assert pack_console.main(given) == 0
    return t.cast("dict[str, str]", json.loads(output.getvalue()))


def test_runs_for_several_machines_keep_apart_and_what_is_old_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("libraries", "wheels"):
        monkeypatch.setattr(pack_console, name, lambda *_given, **_how: b"")
    made = {}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "hosts").write_text(name)
        made[name] = packed(tmp_path / "cache", tmp_path / name)
    for name, digests in made.items():
        content = (tmp_path / "cache" / digests["project.tar"] / "project.tar").read_bytes()
        assert hashlib.sha256(content).hexdigest() == digests["project.tar"]
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            file = archive.extractfile("hosts")
            assert file and file.read() == name.encode()
    assert packed(tmp_path / "cache", tmp_path / "one") == made["one"]
    old, other = (tmp_path / "cache" / made["two"]["project.tar"], tmp_path / "cache/somebody")
    other.mkdir()
    for path in (old, other):
        os.utime(path, (0, 0))
    packed(tmp_path / "cache", tmp_path / "one")
    assert (old.exists(), other.exists()) == (False, True)


def test_a_file_of_the_cache_that_was_changed_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("libraries", "wheels"):
        monkeypatch.setattr(pack_console, name, lambda *_given, **_how: b"")
    (tmp_path / "hosts").write_text("a")
    digest = packed(tmp_path / "cache", tmp_path)["project.tar"]
    path = tmp_path / "cache" / digest / "project.tar"
    path.write_bytes(b"evil")
    packed(tmp_path / "cache", tmp_path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert [each.name for each in path.parent.iterdir()] == ["project.tar"]
