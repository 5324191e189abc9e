"""A secret in any option of any module is seen nowhere: not in results, differences, invocations, errors, the host's
log or files.

Each option is found in the module's own argument spec, so that a new one is covered by itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import re
import subprocess
import sys
import traceback
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import Module
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import libvirt
from ansible_collections.corral.virt.plugins.module_utils._system import private
from ansible_collections.corral.virt.tests.contract.play import Play
from ansible_collections.corral.virt.tests.contract.unreliable import serving
from ansible_collections.corral.virt.tests.tools import payload
from ansible_collections.corral.virt.tests.tools.beside import Beside

pytestmark = pytest.mark.slow

CANARY = "C4nary5ecret"
URL = f"https://{CANARY}user:{CANARY}pass@127.0.0.1:1/a.qcow2?X-Amz-Signature={CANARY}sign&x={CANARY}&y=1#{CANARY}"
LIBVIRT_URL = f"qemu+nowhere://user:{CANARY}@127.0.0.1/system"
SEED = f"#cloud-config\npassword: {CANARY}\nchpasswd: {{expire: false, users: [{{name: a, password: '{CANARY}2'}}]}}\n"
XML = (
    f"<domain><devices><graphics type='vnc' passwd='{CANARY}'/></devices><os><initenv "
    f"name='DB_PASSWORD'>{CANARY}</initenv></os><sysinfo type='fwcfg'><entry "
    f"name='opt/secret'>{CANARY}</entry></sysinfo></domain>"
)
# What an option must hold to be a secret, where the spec does not tell.
SECRETS: dict[str, t.Any] = {
    "xml": XML,
    "user_data": SEED,
    "meta_data": f"instance-id: a\npassword: {CANARY}\n",
    "network_config": f"version: 2\nwifis: {{w0: {{access-points: {{home: {{password: {CANARY}}}}}}}}}\n",
    "headers": {"Authorization": f"Bearer {CANARY}", "X-Token": CANARY},
}
NODE = """<node><pool type='dir'><name>default</name><target><path>{}</path></target></pool>
<network><name>lan</name><bridge name='lan0'/><ip address='192.0.2.1' netmask='255.255.255.0'/></network>
<domain type='test'><name>web1</name><memory>65536</memory><os><type>hvm</type></os><devices>
<graphics type='vnc' passwd='{}'/></devices></domain></node>"""
OLD = f"{CANARY}old"
STARTED: list[str] = []  # commands that this process has started


def _note(event: str, words: tuple[t.Any, ...]) -> None:
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"):
        STARTED.append(repr(words[:2]))


sys.addaudithook(_note)


class CommandLines(Beside):
    """What any user of the machine can read of every process, as it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[bytes] = set()

    def run(self) -> None:
        """Until the block ends."""
        while not self.over.wait(0.005):
            for path in Path("/proc").glob("[1-9]*/cmdline"):
                with contextlib.suppress(OSError):  # it has ended
                    self.read.add(path.read_bytes())


Spec = t.Mapping[str, t.Any]
MODULES = sorted({path.stem for path in payload.modules()} - payload.ON_THE_CONTROLLER)
NEEDED: dict[str, dict[str, t.Any]] = {
    "virt_domain": {"name": "web1"},
    "virt_domains": {},
    "virt_bridge": {"name": "lo"},  # which is no bridge: refused
    "virt_daemon": {"restart_timeout": -1},  # refused: it would change this machine
    "virt_disk_move": {"guest": "test", "disk": "vda", "pool": "default-pool"},
    "virt_pool_drain": {"pool": "default-pool", "to": ["fast"]},
    "virt_firewall": {"ports": [], "sources": []},
    "virt_image": {"name": "a.qcow2", "url": "http://127.0.0.1:1/a.qcow2", "checksum": "none", "retries": 0},
    "virt_migrate": {"name": "web1", "dest": "127.0.0.1", "dest_uri": "qemu+nowhere:///system"},
    "virt_migrations": {},
    "virt_mounts": {"mounts": []},
    "virt_network": {"name": "default"},
    "virt_network_info": {},
    "virt_nwfilter": {"name": "a"},
    "virt_pool": {"name": "default"},
    "virt_secret": {"name": "a", "usage": "ceph"},
    "virt_snapshot": {"guests": ["test"], "name": "a"},
    "virt_volume": {"name": "a", "pool": "default"},
    "virt_tls": {"name": "hyper1", "identities": ["client"]},
    "virt_tuning": {"hugepages": [{"size": "?", "count": 1}]},  # refused: it would change this machine
    "virt_writable": {"paths": []},
}


def spec_of(module: str) -> Spec:
    """As the module says it to Ansible."""

    asked: list[Spec] = []

    def tell(_self: object, argument_spec: Spec, **_more: object) -> t.NoReturn:
        asked.append(argument_spec)
        sys.exit()

    found = importlib.import_module(f"ansible_collections.corral.virt.plugins.modules.{module}")
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SystemExit):
        patch.setattr(basic.AnsibleModule, "__init__", tell)
        found.main()
    return asked[0]


def values(name: str, option: Spec) -> t.Iterator[t.Any]:
    """An option with a secret in it, in each way that it can have one."""
    kind, inside = option.get("type", "str"), option.get("options")
    if inside is not None:
        filled = {key: _any(one) for key, one in inside.items() if one.get("required")}
        for key, one in inside.items():
            for value in values(key, one):
                entry = {**filled, key: value}
                yield [entry] if kind == "list" else entry
        return
    secret = SECRETS.get(name, CANARY if option.get("no_log") else URL)
    if kind in ("str", "path", "raw"):
        yield secret
        if name == "checksum":
            yield f"sha256:{URL}"
        if not option.get("no_log"):
            yield LIBVIRT_URL
    elif kind == "list":
        yield [{"key": secret}] if option.get("elements") == "dict" else [secret]
    elif kind == "dict":
        yield secret if isinstance(secret, dict) else {"key": secret}
    else:  # what it is not: the message about that
        yield URL


def _any(option: Spec) -> t.Any:
    choices = option.get("choices")
    return choices[0] if choices else {"int": 1, "list": [], "dict": {}}.get(option.get("type", "str"), "one")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files of a hypervisor are: a pool, the notes of runs, and its log."""
    (tmp_path / "pool").mkdir()
    (tmp_path / "node.xml").write_text(NODE.format(tmp_path / "pool", OLD))
    monkeypatch.setattr(private, "place", lambda: str(tmp_path / "private"))
    monkeypatch.setattr(libvirt.virConnect, "setKeepAlive", lambda *_figures: 0)  # the test driver has none
    monkeypatch.setattr(basic, "has_journal", False)
    monkeypatch.setattr(basic.syslog, "syslog", lambda *words: (tmp_path / "log").open("a").write(f"{words}\n"))
    return tmp_path


def run(module: str, arguments: dict[str, t.Any], *, check_mode: bool) -> str:
    """What is told of a crash; results and messages are printed."""
    result = {"_ansible_check_mode": check_mode, "_ansible_diff": True, "_ansible_verbosity": 4}
    with patch_module_args({**arguments, **result}):
        try:
            importlib.import_module(f"ansible_collections.corral.virt.plugins.modules.{module}").main()
        except SystemExit:
            return ""
        except Exception:  # noqa: BLE001  whatever it is, Ansible prints it
            return traceback.format_exc()
    return "it gave no answer"


def leaves(module: str, uri: str, place: Path) -> t.Iterator[dict[str, t.Any]]:
    """Arguments of a module, each with a secret in one more option."""
    spec, needed = spec_of(module), NEEDED.get(module, {})
    needed = {
        **needed,
        **({"uri": uri} if "uri" in spec else {}),
        **({"pki_dir": str(place / "pki")} if "pki_dir" in spec else {}),
    }
    for name, option in spec.items():
        for value in values(name, option):
            yield {**needed, name: value}


def seen(text: str) -> list[str]:
    """Where the secret is."""
    return [text[max(0, found.start() - 80) : found.end() + 20] for found in re.finditer(CANARY, text, re.IGNORECASE)]


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("module", MODULES)
def test_a_secret_in_any_option_is_seen_nowhere(
    module: str, check_mode: bool, host: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tried, result = 0, []
    STARTED.clear()
    for arguments in leaves(module, f"test://{host}/node.xml", host):
        tried += 1
        crash = run(module, arguments, check_mode=check_mode)
        out, err = capfd.readouterr()
        assert not crash, f"{arguments}: {crash}"
        if found := seen(out + err):
            result.append((arguments, found))
    assert tried and result == []
    assert [command for command in STARTED if CANARY in command] == []
    files = [path for path in host.rglob("*") if path.is_file() and path != host / "node.xml"]
    assert [path for path in files if CANARY in path.read_bytes().decode(errors="replace")] == []


def test_the_canary_sings(host: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Else the test above finds nothing whatever is shown."""
    for module in MODULES:
        assert len(list(leaves(module, "", host))) >= 1
    run(
        "virt_domain",
        {"uri": f"test://{host}/node.xml", "name": "web1", "description": f"{CANARY} is no secret here"},
        check_mode=True,
    )
    assert len(seen(capfd.readouterr().out)) >= 2, "in the difference, and in the invocation"
    with CommandLines() as lines:
        subprocess.run(["sleep", "0.5", "1e-9"], check=True)
    assert "e-9" in STARTED[-1] and any(b"e-9" in line for line in lines.read)


def tasks(place: Path, server: str) -> list[dict[str, t.Any]]:
    """All that can be said at once, with success where the test driver can, and with failure."""
    uri = f"test://{place}/node.xml"
    image = {"uri": uri, "name": "a.raw", "retries": 0, "headers": SECRETS["headers"]}
    signed = f"{server.replace('://', f'://user:{CANARY}@')}/a.raw?X-Amz-Signature={CANARY}"
    sums = f"{server}/SUMS?token={CANARY}"
    guest = {"uri": uri, "name": "web1", "allow_duplicates": True}
    seed = {key: SECRETS[key] for key in ("user_data", "meta_data", "network_config")}
    new: dict[str, t.Any] = {"name": "web2", "vcpus": 1, "memory": "64MiB", "interfaces": [], "disks": []}
    output = [
        ("virt_image", {**image, "url": signed, "checksum": sums}),
        (
            "virt_image",
            {
                **image,
                "name": "b.raw",
                "url": f"{server}/gone",
                "checksum": "none",
                "url_username": "me",
                "url_password": CANARY,
            },
        ),
        ("virt_image", {**image, "name": "c.raw", "origin": "hyper1", "origin_uri": LIBVIRT_URL}),
        (
            "virt_image",
            {
                **image,
                "name": "d.raw",
                "url": signed,
                "checksum": f"sha512:{sums}",
                "signature": URL,
                "keyring": "/nowhere",
            },
        ),
        ("virt_domain", {**guest, "xml": XML, "graphics": {"type": "vnc", "password": CANARY[:8]}}),
        ("virt_domain", {**guest, "xml": XML.replace(CANARY, f"{CANARY}new")}),
        (
            "virt_domain",
            {**guest, "disks": [{"name": "cd", "device": "cdrom", "url": f"https://127.0.0.1/a.iso?token={CANARY}"}]},
        ),
        (
            "virt_domain",
            {**guest, "disks": [{"name": "cd", "device": "cdrom", "url": f"https://u:{CANARY}@127.0.0.1/a.iso"}]},
        ),
        (
            "virt_domain",
            {**guest, **new, "cloud_init": {"user_data": {"chpasswd": {"users": [{"name": "a", "password": CANARY}]}}}},
        ),
        ("virt_domain", {**guest, **new, "cloud_init": {"user_data": f"a: [{CANARY}"}}),
        (
            "virt_domains",
            {
                "uri": uri,
                "allow_duplicates": True,
                "domains": [{"name": "web1", "xml": XML}, {**new, "cloud_init": seed}],
            },
        ),
        ("virt_domain_info", {"uri": uri}),
        ("virt_state_info", {"uri": uri, "tags": True}),
        ("virt_migrate", {"uri": uri, "name": "web1", "dest": "hyper2", "dest_uri": LIBVIRT_URL}),
        ("virt_migrations", {"uri": uri, "guests": [{"name": "web1", "dest": "hyper2", "dest_uri": LIBVIRT_URL}]}),
    ]
    return [
        {f"corral.virt.{name}": arguments, "ignore_errors": True, "register": f"told{at}"}
        for at, (name, arguments) in enumerate(output)
    ]


@pytest.mark.parametrize("flags", [["--check", "--diff", "-vvvv"], ["--diff", "-vvvv"]], ids=["check", "real"])
def test_a_run_with_all_that_can_be_seen_shows_no_secret(host: Path, flags: list[str]) -> None:
    """Through Ansible, with everything that it prints."""
    (host / "run").mkdir()
    play, body = Play(host / "run"), b"x" * 4096
    files = {f"/a.raw?X-Amz-Signature={CANARY}": body, f"/SUMS?token={CANARY}": f"{'0' * 64}  other.raw\n".encode()}
    with serving(files) as server:
        digest = hashlib.sha256(body).hexdigest()
        server.files[f"/SUMS?token={CANARY}"] = f"{digest}  a.raw\n".encode()
        play.hosts(hyper={"h1": {}})
        all_tasks = tasks(host, server.url)
        with CommandLines() as lines:
            play.run(*all_tasks, options=flags)
    assert any(b"ansible" in line for line in lines.read) and not [
        line for line in lines.read if CANARY.encode() in line
    ]
    ends = re.findall(r"^(?:changed|ok|fatal): \[h1\]|^\[ERROR\]: Task failed", play.stdout, re.MULTILINE)
    assert len(ends) >= len(all_tasks) and "changed: [h1]" in play.stdout
    assert seen(play.stdout) == [], seen(play.stdout)[0]
    left = [path for path in host.rglob("*") if path.is_file() and path.name not in ("play.yml", "node.xml")]
    assert any(path.name.endswith(".json") and "a.raw" in path.name for path in left) == ("--check" not in flags), (
        "its manifest is there"
    )
    assert [path for path in left if CANARY.encode() in path.read_bytes()] == []
    kept = [path for path in Path("/run/corral").glob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    assert kept == []


def test_what_a_query_shares_with_the_name_hides_no_path() -> None:
    url = f"https://127.0.0.1:1/get?file=debian-amd64.qcow2&arch=amd64&token={CANARY}"
    with patch_module_args({"name": "debian-amd64.qcow2", "url": url}):
        module = Module(argument_spec={"name": {"type": "str"}, "url": {"type": "str"}})
    assert CANARY in module.no_log_values and not {"debian-amd64.qcow2", "amd64"} & module.no_log_values
