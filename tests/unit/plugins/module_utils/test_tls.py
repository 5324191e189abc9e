"""TLS: what is decided, what is written, and what a power cut leaves."""

from __future__ import annotations

import contextlib
import datetime
import grp
import itertools
import os
import shutil
import stat
import typing as t
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._files import tls as files
from ansible_collections.corral.virt.plugins.module_utils._front.tls import OPTIONS, wanted
from ansible_collections.corral.virt.plugins.module_utils._model.tls import (
    CONTROLLER,
    IDENTITIES,
    USAGES,
    Certificate,
    File,
    Found,
    Wanted,
    check_names,
)
from ansible_collections.corral.virt.plugins.module_utils._plan.tls import Request, SetMode, decide

NOW = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
LIBVIRT = IDENTITIES["libvirt"]
GOAL = Wanted(LIBVIRT, "hyper1", ("10.0.0.1", "hyper1"), datetime.timedelta(days=30))
GOOD = Certificate(GOAL.subject, GOAL.names, USAGES, NOW + datetime.timedelta(days=200), "5f", "ab")


def found(certificate: Certificate | None = GOOD, **faults: dict[str, t.Any]) -> Found:
    """All files in order, except what `faults` says by file name (with `_` for `.`)."""
    rows = {}
    for place in LIBVIRT.places:
        fields = {"owner": "root", "group": "root", "mode": LIBVIRT.mode(place)}
        rows[place.path] = File(place, **{**fields, **faults.get(place.name.replace(".", "_"), {})})
    return Found(rows, certificate)


def changed(**fields: t.Any) -> Certificate:
    return Certificate(**{**GOOD.__dict__, **fields})


def test_what_is_as_wanted_needs_nothing() -> None:
    plan = decide(GOAL, found(), now=NOW)
    assert not plan.steps
    assert not plan.changes


@pytest.mark.parametrize(
    ("state", "where"),
    [
        (Found({}), {"files", "subject", "names", "usage"}),
        (found(cacert_pem={"foreign": True}), {"authority"}),
        (found(serverkey_pem={"fault": "does not belong to servercert.pem"}), {"files"}),
        (found(changed(names=("hyper1",))), {"names"}),
        (found(changed(names=(*GOAL.names, "old"))), {"names"}),
        (found(changed(subject="CN=x")), {"subject"}),
        (found(changed(usages=("serverAuth",))), {"usage"}),
        (found(changed(not_after=NOW + datetime.timedelta(days=29, hours=23))), {"not_after"}),
        (found(changed(not_after=NOW - datetime.timedelta(days=5))), {"not_after"}),
        (found(serverkey_pem={"mode": 0o644}), {"key"}),
    ],
)
def test_anything_wrong_with_a_certificate_asks_for_a_new_one(state: Found, where: set[str]) -> None:
    plan = decide(GOAL, state, now=NOW)
    assert [type(step) for step in plan.steps] == [Request]
    assert {change.where for change in plan.changes} == {f"libvirt.{name}" for name in where}


def test_a_certificate_valid_long_enough_is_kept() -> None:
    assert not decide(GOAL, found(changed(not_after=NOW + datetime.timedelta(days=30))), now=NOW).steps


def test_permissions_alone_keep_the_key() -> None:
    plan = decide(GOAL, found(servercert_pem={"mode": 0o600}, clientkey_pem={"group": "kvm"}), now=NOW)
    assert [type(step) for step in plan.steps] == [SetMode, SetMode]
    assert str(plan.steps[0]) == "set root:root 0644 on libvirt/servercert.pem"
    assert [str(change) for change in plan.changes] == [
        "libvirt/servercert.pem: root:root 0600 -> root:root 0644",
        "libvirt/private/clientkey.pem: root:kvm 0600 -> root:root 0600",
    ]


def test_every_problem_of_the_input_is_told_at_once() -> None:
    params = {name: option.get("default") for name, option in OPTIONS.items()}
    params.update(name="a/b", names=["ok", "not a name", "10.0.0.256.1.", "x" * 64], days=10, renew_before=10, identities=[])
    with pytest.raises(BadInput, match="not a valid name") as caught:
        wanted(params, group=lambda name: name)
    assert len(caught.value.problems) == 6


def test_names_have_one_form() -> None:
    assert check_names(["B.example", "a", "2001:DB8:0::1", "a"], what="names") == ("2001:db8::1", "a", "b.example")


@pytest.fixture(scope="session")
def keys() -> list[t.Any]:
    """RSA keys take their time: a few short ones serve all tests, in turn."""
    return [rsa.generate_private_key(public_exponent=65537, key_size=1024) for _number in range(5)]


@pytest.fixture(autouse=True)
def _ready_keys(keys: list[t.Any], monkeypatch: pytest.MonkeyPatch) -> None:
    turn = itertools.cycle(keys)
    monkeypatch.setattr("ansible_collections.corral.virt.plugins.plugin_utils._ca.KEY_BITS", 1024)
    monkeypatch.setattr(rsa, "generate_private_key", lambda **_options: next(turn))


# On disk, with a real CA --------------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path) -> t.Any:
    ca = pytest.importorskip("ansible_collections.corral.virt.plugins.plugin_utils._ca")
    authority = ca.Authority(str(tmp_path / "ca"))
    authority.make()
    return authority


def goal(identity: str = "libvirt", **fields: t.Any) -> Wanted:
    owner, group = files.me()
    days = datetime.timedelta(days=30)
    return Wanted(IDENTITIES.get(identity, CONTROLLER), "hyper1", ("10.0.0.1", "hyper1"), days, owner, group, **fields)


def issue(authority: t.Any, wanted: Wanted, root: Path) -> None:
    csr = files.request(wanted.identity, str(root), subject=wanted.subject)
    signed = authority.sign(csr, wanted, days=100)
    files.install(wanted, str(root), certificate=signed, authority=authority.certificate())


def read(authority: t.Any, wanted: Wanted, root: Path) -> Found:
    return files.read(wanted.identity, str(root), authority=authority.certificate())


@pytest.mark.parametrize("identity", ["libvirt", "qemu", "controller"])
def test_installed_is_as_wanted(authority: t.Any, tmp_path: Path, identity: str) -> None:
    wanted, root = goal(identity), tmp_path / "pki"
    issue(authority, wanted, root)
    state = read(authority, wanted, root)
    now = datetime.datetime.now(datetime.UTC)
    assert not decide(wanted, state, now=now).changes
    assert state.certificate is not None
    assert state.certificate.subject == f"O=corral.virt,OU={wanted.identity.unit},CN=hyper1"
    left = [path.name for path in (root / wanted.identity.store).iterdir() if path.name != "current"]
    assert left == [state.certificate.serial], "only the set in use stays"


def test_a_renewal_replaces_key_and_certificate(authority: t.Any, tmp_path: Path) -> None:
    key = tmp_path / "pki/libvirt/private/serverkey.pem"
    issue(authority, goal(), tmp_path / "pki")
    before = key.read_text()
    issue(authority, goal(), tmp_path / "pki")
    assert key.read_text() != before
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_another_authority_is_seen(authority: t.Any, tmp_path: Path) -> None:
    issue(authority, goal(), tmp_path / "pki")
    other = type(authority)(str(tmp_path / "other"))
    other.make()
    state = read(other, goal(), tmp_path / "pki")
    assert {file.place.kind for file in state.files.values() if file.foreign} == {"ca", "cert"}
    assert not any(file.fault for file in state.files.values())


def test_a_certificate_for_another_key_is_refused(authority: t.Any, tmp_path: Path) -> None:
    root = str(tmp_path / "pki")
    signed = authority.sign(files.request(LIBVIRT, root, subject=goal().subject), goal(), days=100)
    files.request(LIBVIRT, root, subject=goal().subject)  # another run
    with pytest.raises(Refused, match="does not belong"):
        files.install(goal(), root, certificate=signed, authority=authority.certificate())
    assert not (tmp_path / "pki/libvirt/servercert.pem").exists()


def test_without_qemu_its_key_has_nobody_to_belong_to(authority: t.Any, tmp_path: Path) -> None:
    wanted = Wanted(IDENTITIES["qemu"], "hyper1", ("hyper1",), datetime.timedelta(days=30), files.me()[0], None)
    with pytest.raises(Failed, match="install QEMU"):
        issue(authority, wanted, tmp_path / "pki")


def test_the_group_of_qemu() -> None:
    assert files.group("no-such-group") is None
    assert files.group(grp.getgrgid(os.getgid()).gr_name) is not None


class PowerCut(Exception):
    """Nothing after this happens."""


def lay_plain(authority: t.Any, root: Path) -> None:
    """Files as somebody else would have put them, with a pair each for server and client."""
    for pair in (0, 1):
        scratch = root.with_name(f"scratch{pair}")
        issue(authority, goal(), scratch)
        for place in LIBVIRT.places[1 + 2 * pair : 3 + 2 * pair] + LIBVIRT.places[:1]:
            target = root / place.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((scratch / place.path).read_bytes())
            target.chmod(LIBVIRT.mode(place))


@pytest.mark.parametrize("before", ["nothing", "ours", "plain"])
def test_a_power_cut_leaves_the_old_set_or_the_new(authority: t.Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    """Cut at each write in turn: what libvirt would read must be whole, and the next run must mend the rest."""
    cut = 0
    while True:
        cut += 1
        root = tmp_path / f"pki{cut}"
        if before == "ours":
            issue(authority, goal(), root)
        elif before == "plain":
            lay_plain(authority, root)
        csr = files.request(LIBVIRT, str(root), subject=goal().subject)
        signed = authority.sign(csr, goal(), days=100)
        old = {place.path: (root / place.path).read_bytes() for place in LIBVIRT.places if (root / place.path).exists()}
        with monkeypatch.context() as patch:
            reached = powerless_after(cut, patch)
            with contextlib.suppress(PowerCut):
                files.install(goal(), str(root), certificate=signed, authority=authority.certificate())
        now = {place.path: (root / place.path).read_bytes() for place in LIBVIRT.places if (root / place.path).exists()}
        whole = not any(file.fault or file.foreign for file in read(authority, goal(), root).files.values())
        assert now == old or (whole and len(now) == len(LIBVIRT.places)), f"write {cut} left halves"
        issue(authority, goal(), root)
        state = read(authority, goal(), root)
        assert not decide(goal(), state, now=datetime.datetime.now(datetime.UTC)).changes
        if not reached():
            break  # there was no more to cut
    assert cut > 6


def powerless_after(writes: int, patch: pytest.MonkeyPatch) -> t.Callable[[], bool]:
    """Let so many changes of the disk through, then none; the returned function says whether it came to that."""
    count = 0

    def guarded(real: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def do(*args: t.Any, **kwargs: t.Any) -> t.Any:
            nonlocal count
            count += 1
            if count > writes:
                raise PowerCut
            return real(*args, **kwargs)

        return do

    for name in ("replace", "symlink_to", "unlink", "mkdir", "chmod"):
        patch.setattr(Path, name, guarded(getattr(Path, name)))
    patch.setattr(os, "fdopen", guarded(os.fdopen))
    patch.setattr(shutil, "rmtree", guarded(shutil.rmtree))
    return lambda: count > writes
