"""Two years and more of a cloud: no two hosts are ever unable to verify each other, whatever is renewed, replaced or
left out.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import re
import shutil
import typing as t
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._tls import files_tls
from ansible_collections.corral.virt.plugins.module_utils._tls.files_trust import each
from ansible_collections.corral.virt.plugins.plugin_utils._authority import ca
from ansible_collections.corral.virt.plugins.plugin_utils._authority.authorities import Authorities
from ansible_collections.corral.virt.plugins.plugin_utils._report.expiry_warnings import expiry_warnings
from ansible_collections.corral.virt.tests.unit.plugins.plugin_utils import earlier
from ansible_collections.corral.virt.tests.unit.plugins.plugin_utils.months import MONTH, Cloud

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="the files belong to root")]

DAY = datetime.timedelta(days=1)


@pytest.fixture(scope="session")
def keys() -> list[t.Any]:
    """RSA keys take their time: short ones serve all tests, in turn."""
    return [rsa.generate_private_key(public_exponent=65537, key_size=1024) for _number in range(24)]


@pytest.fixture
def cloud(tmp_path: Path, keys: list[t.Any], monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Three hosts that have nothing yet."""
    turn = itertools.cycle(keys)
    monkeypatch.setattr("ansible_collections.corral.virt.plugins.plugin_utils._authority.ca.KEY_BITS", 1024)
    monkeypatch.setattr(rsa, "generate_private_key", lambda **_options: next(turn))
    for host in ("h1", "h2", "h3"):
        (tmp_path / host).mkdir()
    return Cloud(tmp_path)


def test_the_first_play_makes_all_and_the_second_nothing(cloud: Cloud) -> None:
    result = cloud.play()
    assert all(one["changed"] and not one["rolling"] for one in result.values())
    assert not cloud.refusals()
    result = cloud.play()
    assert not any(one["changed"] for one in result.values()), result


@pytest.mark.deep
def test_four_years_month_by_month_and_a_roll_over(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first CA lives for four years; a host is off for a quarter, another one comes, a third gets a new address."""
    monkeypatch.setattr("ansible_collections.corral.virt.plugins.plugin_utils._authority.ca.LIFE", 1460 * DAY)
    cloud.play()
    made: dict[int, int] = {}
    for month in range(1, 49):
        cloud.now += MONTH
        on = [host for host in cloud.hosts if not (host == "h3" and 10 <= month < 14)]
        assert not cloud.refusals(*(host for host in on if not (host == "h3" and month == 14)))
        if month == 20:
            (cloud.place / "h4").mkdir()
            cloud.hosts.append("h4")
            on.append("h4")
        if month == 30:
            cloud.visit("h2", names=["h2", "10.9.9.9"])
            assert not cloud.refusals(*on)
        cloud.play(*on)
        if month % 12 == 0:
            assert not any(one["changed"] for one in cloud.play(*on).values())
        made.setdefault(len([*(cloud.place / "ca/libvirt").iterdir()]), month)
    assert made == {1: 1, 2: 25}


def test_a_roll_over_waits_for_who_could_not_be_reached(cloud: Cloud) -> None:
    cloud.play()
    cloud.now += MONTH
    first = cloud.visit("h1", new_authority=True)
    assert not cloud.refusals()
    assert {*first["rolling"]} == {"libvirt", "qemu"} and first["rolling"]["libvirt"] == first["rolling"]["qemu"] == [
        "h2",
        "h3",
    ]
    cloud.play("h1", "h2")
    assert not cloud.refusals()
    result = cloud.play("h1", "h2")
    assert result["h1"]["rolling"] == {"libvirt": ["h3"], "qemu": ["h3"]}, "nobody shows what h3 does not trust"
    assert not any(one["changed"] for one in result.values())
    result = cloud.play()
    assert not cloud.refusals()
    assert not any(one["rolling"] for one in result.values())
    assert (cloud.path("h1", "CA/cacert.pem")).read_text() == (cloud.place / "ca/libvirt/2/ca-cert.pem").read_text()
    assert not any(one["changed"] for one in cloud.play().values())


def test_a_revoked_host_is_refused_by_all_who_were_visited(cloud: Cloud) -> None:
    cloud.play()
    kept = {
        name: cloud.path("h3", name).read_bytes()
        for name in ("libvirt/clientcert.pem", "qemu/client-cert.pem", "libvirt/servercert.pem")
    }
    before = cloud.path("h1", "libvirt/servercert.pem").read_bytes()
    result = cloud.revoke(name="h3")
    assert result["changed"] and len(result["steps"]) == 4 and result["revoked"] == ["h3"]
    assert not cloud.revoke(name="h3")["changed"]
    result = cloud.play("h1", "h2")
    assert all(one["changed"] for one in result.values())
    assert cloud.path("h1", "libvirt/servercert.pem").read_bytes() == before, "the others keep theirs"
    assert not cloud.refusals("h1", "h2")
    for kind, name in (("libvirt", "libvirt/clientcert.pem"), ("qemu", "qemu/client-cert.pem")):
        assert "certificate revoked" in cloud.refused("h1", kind, "client", cloud.path("h3", name))
    assert "certificate revoked" in cloud.refused(
        "controller", "libvirt", "server", cloud.path("h3", "libvirt/servercert.pem")
    )
    assert not any(one["changed"] for one in cloud.play("h1", "h2").values())
    cloud.now += MONTH
    cloud.play()
    assert not cloud.refusals(), "it is still in the inventory: it has new ones"
    for name, text in kept.items():
        (cloud.place / "stolen.pem").write_bytes(text)
        kind, purpose = name.split("/")[0], "client" if "client" in name else "server"
        assert "certificate revoked" in cloud.refused("h1", kind, purpose, cloud.place / "stolen.pem")


def test_who_leaves_the_inventory_is_revoked_and_who_is_in_another_one_is_not(cloud: Cloud) -> None:
    cloud.play("h1", "h2")
    cloud.inventory = "other.yml"
    cloud.visit("h3")
    result = cloud.revoke(inventories=["other.yml"], hypervisors=["h3"])
    assert not result["changed"] and not result["warnings"], (
        "another inventory has them, or one that told nothing this time"
    )
    cloud.inventory = "hosts.yml"
    assert not cloud.revoke(["h1", "h2"], hypervisors=["h1"])["changed"], "it is a hypervisor of another group"
    limited = cloud.revoke(["h1"], hypervisors=["h1"], limited=True)
    assert not limited["changed"], "h2 may be a host that has another name now, and that this run leaves out"
    assert ["rotate_certificates -e revoke=h2" in one for one in limited["warnings"]] == [True]
    assert cloud.revoke(["h1"], hypervisors=["h1"])["revoked"] == ["h2"]
    cloud.play("h1", "h3")
    assert not cloud.refusals("h1", "h3")
    assert "revoked" in cloud.refused("h1", "libvirt", "client", cloud.path("h2", "libvirt/clientcert.pem"))


def test_another_controller_keeps_what_the_first_one_revoked(cloud: Cloud) -> None:
    """It has the CAs, and nothing of what they did."""
    cloud.play()
    cloud.revoke(name="h3")
    cloud.play("h1")
    first, second = cloud.place / "ca", cloud.place / "second"
    for folder in ("libvirt", "qemu"):
        shutil.copytree(first / folder, second / folder)
    cloud.visit("h1", ca_dir=str(second))
    assert not cloud.visit("h1", ca_dir=str(second))["changed"]
    cloud.visit("h2", ca_dir=str(second))
    for host in ("h1", "h2"):
        assert "revoked" in cloud.refused(host, "libvirt", "client", cloud.path("h3", "libvirt/clientcert.pem"))
    assert not cloud.refusals("h1", "h2")


def test_a_list_that_no_ca_of_ours_signed_revokes_nobody(cloud: Cloud) -> None:
    """A host can show whatever it likes."""
    cloud.play()
    kept = Authorities(str(cloud.place / "ca"), clock=lambda: cloud.now)
    serial = int(x509.load_pem_x509_certificate(cloud.path("h2", "libvirt/clientcert.pem").read_bytes()).serial_number)
    certificate, key = (text.decode() for text in ca.make("libvirt", now=cloud.now))
    theirs = ca.CertificateAuthority(certificate, key, passphrase=None, named="theirs").crl(
        [ca.Revoked(serial, cloud.now)]
    )
    assert not kept.adopt("libvirt", theirs.decode())
    assert not any(one["changed"] for one in cloud.play().values())
    own = cloud.place / "ca/libvirt/1"
    ours = ca.CertificateAuthority(
        *((own / name).read_text() for name in ("ca-cert.pem", "ca-key.pem")), passphrase=None, named="ours"
    )
    assert kept.adopt("libvirt", ours.crl([ca.Revoked(serial, cloud.now)]).decode())
    assert kept.trust("libvirt", name="h1", gate=Gate(check_mode=True)).refuses == (f"{serial:x}",)


def test_texts_of_both_authorities_serve_and_one_replaces_another_in_three_runs(cloud: Cloud) -> None:
    def texts(number: int, *also: int) -> dict[str, t.Any]:
        output: dict[str, t.Any] = {}
        for authority, prefix in (("libvirt", ""), ("qemu", "qemu_")):
            place = cloud.place / f"made/{authority}"
            output[f"{prefix}ca_certificate"] = "".join(
                (place / f"{one}/ca-cert.pem").read_text() for one in (*also, number)
            )
            output[f"{prefix}ca_key"] = (place / f"{number}/ca-key.pem").read_text()
        return output

    made = Authorities(str(cloud.place / "made"), clock=lambda: cloud.now)
    for authority in ("libvirt", "qemu", "libvirt", "qemu"):
        made.make(made.another(authority))
    gone = "".join((cloud.place / f"made/{authority}/1/ca-cert.pem").read_text() for authority in ("libvirt", "qemu"))
    runs = [texts(1), texts(1, 2), texts(2, 1), {**texts(2), "retired_ca_certificates": gone}]
    for output in runs:
        for host in cloud.hosts:
            assert cloud.visit(host, **output)["changed"]
            assert not cloud.refusals(*cloud.hosts[: cloud.hosts.index(host) + 1])
        for host in cloud.hosts:
            assert not cloud.visit(host, **output)["changed"]
    assert cloud.path("h1", "CA/cacert.pem").read_text() == texts(2)["ca_certificate"]
    assert not [*(cloud.place / "ca").rglob("ca-key.pem")]
    with pytest.raises(Refused, match="it belongs to another authority"):
        cloud.visit("h1", **texts(1))


@pytest.mark.deep
def test_an_earlier_version_with_one_ca_for_both_goes_over_to_two(cloud: Cloud) -> None:
    """h3 cannot be reached for a while; QEMU's old certificates are good for nothing in the end."""
    earlier.lay(cloud.place, cloud.hosts, now=cloud.now)
    old = {name: cloud.path("h2", name).read_bytes() for name in ("qemu/server-cert.pem", "qemu/client-cert.pem")}
    assert not cloud.refusals()
    cloud.now += MONTH
    checked = cloud.visit("h1", check_mode=True)
    assert checked["changed"] and not (cloud.place / "ca/qemu").exists()
    cloud.play("h1", "h2")
    assert not cloud.refusals()
    assert not any(one["changed"] for one in cloud.play("h1", "h2").values())
    cloud.now += MONTH
    result = cloud.play()
    assert not any(one["rolling"] for one in result.values())
    assert not cloud.refusals()
    assert not any(one["changed"] for one in cloud.play().values())
    libvirts, qemus = (set(each(cloud.path("h1", name).read_text())) for name in ("CA/cacert.pem", "qemu/ca-cert.pem"))
    assert len(libvirts) == len(qemus) == 1 and not libvirts & qemus
    for name, text in old.items():
        (cloud.place / "old.pem").write_bytes(text)
        purpose = "server" if "server" in name else "client"
        for host in ("h1", "controller"):
            assert "revoked" in cloud.refused(host, "libvirt", purpose, cloud.place / "old.pem")


@pytest.mark.deep
def test_whom_nobody_reached_for_a_year_does_not_hold_up_the_others(cloud: Cloud) -> None:
    cloud.play()
    cloud.visit("h1", new_authority=True)
    for _month in range(11):
        cloud.now += MONTH
        assert cloud.play("h1", "h2")["h1"]["rolling"]
        assert not cloud.refusals("h1", "h2")
    cloud.now += 2 * MONTH
    assert not cloud.play("h1", "h2")["h1"]["rolling"], "its certificates have ended"
    cloud.play()
    assert not cloud.refusals()


@pytest.mark.parametrize(
    "killed", [pytest.param(number, marks=() if number % 4 == 0 else pytest.mark.deep) for number in range(12)]
)
def test_a_run_that_is_killed_anywhere_divides_nobody(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, killed: int
) -> None:
    """Killed at each write in turn, here and on the hosts, in the middle of a roll-over."""
    cloud.play()
    cloud.now += MONTH
    writes = 0
    real = files_tls.write

    def write(path: Path, *words: t.Any, **more: t.Any) -> None:
        nonlocal writes
        writes += 1
        if writes > killed * 6:
            raise KeyboardInterrupt
        real(path, *words, **more)

    with monkeypatch.context() as patch:
        patch.setattr(files_tls, "write", write)
        with contextlib.suppress(KeyboardInterrupt):
            cloud.play(new_authority=True)
    assert not cloud.refusals()
    cloud.play()
    assert not cloud.refusals()
    result = cloud.play()
    assert not any(one["changed"] or one["rolling"] for one in result.values())


def test_restricted_cas_vouch_for_the_hosts_and_the_controller_and_refuse_others(cloud: Cloud) -> None:
    cloud.play(ca_constraints=["h1", "h2", "h3", "10.0.0.0/24"])
    assert not cloud.refusals()
    with pytest.raises(
        Refused, match=r"restricted to h1, h2, h3, controller, 10.0.0.0/24, which excludes 192.0.2.1, h1.example"
    ):
        cloud.visit("h1", names=["h1", "www.h1", "h1.example", "192.0.2.1"])
    cloud.visit("h1", names=["h1", "www.h1", "10.0.0.1"])
    assert not cloud.refusals()
    with pytest.raises(BadInput, match=r"'10.0.0.1/24' is neither a domain.*nor a network"):
        cloud.visit("h1", ca_constraints=["10.0.0.1/24"], new_authority=True)
    assert [path.name for path in (cloud.place / "ca/libvirt").iterdir()] == ["1"]


def test_a_key_gets_its_passphrase_once_though_the_actions_of_several_hosts_find_it_without(cloud: Cloud) -> None:
    cloud.play()
    authorities = Authorities(str(cloud.place / "ca"), passphrase="correct horse")
    for step in 2 * authorities.unprotected():
        authorities.protect(step)
    assert not authorities.unprotected()
    result = cloud.play(ca_passphrase="correct horse", force=True)
    assert all(one["changed"] for one in result.values()) and not cloud.refusals()


def test_a_certificate_that_another_host_gives_up_meanwhile_is_still_seen(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.play()
    moved, read = cloud.place / "ca/superseded", Path.read_bytes

    def just_after(path: Path) -> bytes:
        if path.parent.name == "issued" and not moved.exists():
            moved.mkdir()
            path.rename(moved / path.name)
        return read(path)

    known = Authorities(str(cloud.place / "ca")).to_revoke(names=cloud.hosts)
    monkeypatch.setattr(Path, "read_bytes", just_after)
    assert len(Authorities(str(cloud.place / "ca")).to_revoke(names=cloud.hosts)) == len(known) == 12
    assert moved.exists()


# A host, a copy or an administrator that is not what one would like
# -------------------------------------------------------


def test_nothing_is_called_revoked_of_which_nothing_is_known(cloud: Cloud) -> None:
    cloud.play()
    with pytest.raises(
        Refused, match=r"cannot revoke the certificates of h33: .*/ca has no record of certificates issued to it\."
    ):
        cloud.revoke(name="h33")
    assert cloud.revoke(name="h3")["changed"] and not cloud.revoke(name="h3")["changed"]


def test_nothing_is_called_revoked_that_no_list_will_hold(cloud: Cloud) -> None:
    """The CA that signed it is not here any more."""
    cloud.play()
    for path in [*(cloud.place / "ca/issued").iterdir()]:
        path.write_text(path.read_text().partition("\n")[2])  # as an earlier version wrote it
    for folder in ("libvirt", "qemu"):
        shutil.rmtree(cloud.place / "ca" / folder)
    with pytest.raises(Refused, match="cannot revoke the certificates of h3: the CA that signed them is not in"):
        cloud.revoke(name="h3")
    assert not (cloud.place / "ca/revoked").exists()


@pytest.mark.parametrize(
    "revoked", [{"name": "h3"}, {"name": "controller"}, {"hypervisors": ["h1", "h2"], "hosts": ["h1", "h2"]}]
)
def test_a_check_of_a_revocation_shows_what_the_run_does_on_each_host(cloud: Cloud, revoked: dict[str, t.Any]) -> None:
    """A host that is revoked and stays in the inventory gets new certificates."""
    cloud.play()
    hosts = revoked.get("hosts") or cloud.hosts
    planned = cloud.revoke(check_mode=True, **revoked)
    assert planned["changed"] and not cloud.revoke(check_mode=True, **revoked)["changed"], "once, as the run does"
    checked = {host: cloud.visit(host, check_mode=True) for host in hosts}
    assert not [*(cloud.place / "ca").glob("revoked/*")]
    assert not any(cloud.visit(host)["changed"] for host in hosts), "what a check has planned is not done"
    done = cloud.revoke(**revoked)
    assert (done["steps"], done["diff"]) == (planned["steps"], planned["diff"])
    for host in hosts:
        result = cloud.visit(host)
        assert checked[host]["steps"] and checked[host]["diff"] == result["diff"]
        assert checked[host]["steps"] == [step for step in result["steps"] if not step.startswith("install")]
        assert (checked[host]["renewed"], checked[host]["changed"]) == (result["renewed"], result["changed"])


def test_what_an_empty_directory_has_seen_it_can_revoke(cloud: Cloud) -> None:
    """The directory came back from a copy that was made before h3 was."""
    cloud.play("h1", "h2")
    shutil.copytree(cloud.place / "ca", cloud.place / "copy")
    cloud.play()
    shutil.rmtree(cloud.place / "ca")
    (cloud.place / "copy").rename(cloud.place / "ca")
    assert not cloud.visit("h3")["changed"]
    assert len(cloud.revoke(name="h3")["steps"]) == 4


@pytest.mark.deep
def test_a_host_that_comes_back_with_what_it_had_before_is_not_forgotten(cloud: Cloud) -> None:
    cloud.play()
    shutil.copytree(cloud.place / "h3", cloud.place / "backup", symlinks=True)
    cloud.play(force=True)
    shutil.rmtree(cloud.place / "h3")
    (cloud.place / "backup").rename(cloud.place / "h3")
    cloud.visit("h3")
    cloud.visit("h1", new_authority=True)
    for _run in range(3):
        cloud.play("h1", "h2")
    assert not cloud.refusals(), "h3 is off, and shows certificates of the first CA"


def test_an_inventory_that_told_nothing_revokes_nobody(cloud: Cloud) -> None:
    cloud.play("h1")
    cloud.inventory = "netbox.sh"
    cloud.visit("h2")
    assert not cloud.revoke(["h1"], inventories=["hosts.yml"], hypervisors=["h1"])["changed"]
    (cloud.place / "ca/hosts/h2.json").unlink()
    result = cloud.revoke(["h1"], inventories=["hosts.yml"], hypervisors=["h1"])
    assert not result["changed"] and "-e revoke=h2" in result["warnings"][0]


def test_a_removal_that_was_killed_is_ended_by_the_next_run(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.play()
    writes = iter([True, False])
    real = files_tls.write

    def write(*words: t.Any, **more: t.Any) -> None:
        if not next(writes):
            raise KeyboardInterrupt
        real(*words, **more)

    with monkeypatch.context() as patch:
        patch.setattr(files_tls, "write", write)
        with pytest.raises(KeyboardInterrupt):
            cloud.revoke(["h1", "h2"], hypervisors=["h1", "h2"])
    assert len(cloud.revoke(["h1", "h2"], hypervisors=["h1", "h2"])["steps"]) == 3


@pytest.mark.deep
def test_what_was_revoked_stays_so_while_given_cas_replace_one_another(cloud: Cloud) -> None:
    """Each job begins with an empty directory; only the hosts have the list."""
    made = Authorities(str(cloud.place / "made"), clock=lambda: cloud.now)
    for authority in ("libvirt", "qemu", "libvirt", "qemu"):
        made.make(made.another(authority))

    def job(key: int, *cas: int) -> dict[str, t.Any]:
        shutil.rmtree(cloud.place / "ca", ignore_errors=True)
        return {
            f"{prefix}ca_{option}": "".join(
                (cloud.place / f"made/{authority}/{one}/ca-{name}.pem").read_text() for one in which
            )
            for authority, prefix in (("libvirt", ""), ("qemu", "qemu_"))
            for option, name, which in (("certificate", "cert", cas), ("key", "key", (key,)))
        }

    for host in cloud.hosts:
        cloud.visit(host, **job(1, 1))
    cloud.visit("h3", **job(1, 1))
    texts = job(1, 1)
    cloud.visit("h3", **texts)
    cloud.revoke(name="h3", **texts)
    cloud.visit("h1", **texts)
    for output in ((1, 1, 2), (2, 1, 2)):
        cloud.visit("h1", **job(*output))
        assert "revoked" in cloud.refused("h1", "libvirt", "client", cloud.path("h3", "libvirt/clientcert.pem"))


def test_a_ca_that_was_lost_is_not_made_again(cloud: Cloud) -> None:
    cloud.play()
    shutil.rmtree(cloud.place / "ca/qemu")
    with pytest.raises(Refused, match=r"cannot create a CA for qemu in .*: there was one, .* those of h1, h2, h3"):
        cloud.visit("h4", controller=False)


@pytest.mark.parametrize("passphrase", [None, "anothr"])
def test_no_ca_is_made_with_a_passphrase_that_is_forgotten_or_wrong(cloud: Cloud, passphrase: str | None) -> None:
    cloud.play(ca_passphrase="another")
    with pytest.raises(Refused, match=r"passphrase"):
        cloud.visit("h1", new_authority=True, ca_passphrase=passphrase)
    assert not (cloud.place / "ca/libvirt/2").exists()


@pytest.mark.parametrize(
    "lie",
    [
        {"trusts": {"libvirt": [["x"]], "../x": ["y"]}},
        {"trusts": {"libvirt": ["nonsense"], "qemu": []}},
        {"certificates": {"libvirt": {"server": {"serial": "zz", "not_after": 5}}}},
        {"held": {"libvirt": ["no certificate"]}},
        {"renewed": []},
        {"crl": {"libvirt": 5, "../../etc": "x"}},
    ],
)
def test_a_host_that_lies_harms_nobody_else(cloud: Cloud, lie: dict[str, t.Any]) -> None:
    cloud.play()
    cloud.answer = lambda ask: lambda params: {**ask(params), **lie}
    cloud.visit("h3")
    cloud.answer = lambda ask: ask
    assert not expiry_warnings(str(cloud.place / "ca"), now=cloud.now)
    assert not any(one["changed"] for one in cloud.play("h1", "h2").values())
    cloud.play()
    assert not cloud.refusals()


def test_names_are_looked_at_whatever_the_host_says_of_its_requests(cloud: Cloud) -> None:
    cloud.answer = lambda ask: lambda params: {**ask(params), "renewed": []}

    def refuse() -> None:
        raise BadInput(["names of h1: h2 belongs to h2 in the inventory"])

    cloud.check = refuse
    with pytest.raises(BadInput, match="h2 belongs to h2 in the inventory"):
        cloud.visit("h1")
    assert not (cloud.place / "ca/issued").exists()


def test_clocks_that_differ_are_the_reason_that_is_told(cloud: Cloud) -> None:
    cloud.play()
    before = cloud.path("h1", "libvirt/servercert.pem").read_bytes()
    cloud.host_ahead = 800 * DAY
    with pytest.raises(Refused, match="set the clocks of this host and of the controller"):
        cloud.visit("h1")
    assert cloud.path("h1", "libvirt/servercert.pem").read_bytes() == before


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_host_whose_clock_is_late_keeps_the_cas_that_it_can_load(cloud: Cloud, check_mode: bool) -> None:
    """libvirt and QEMU load no list with a CA that is not valid yet ("is not yet active")."""
    cloud.play()
    cloud.now += MONTH
    cloud.visit("h1", new_authority=True)
    before = {path: path.read_bytes() for path in cloud.path("h2", "").rglob("*.pem")}
    cloud.host_ahead = -3 * DAY
    with pytest.raises(
        Refused, match=r"is valid from 2026-11-30 12:00 UTC on, and the clock there says 2026-11-28 12:00; set"
    ):
        cloud.visit("h2", check_mode=check_mode)
    assert {path: path.read_bytes() for path in cloud.path("h2", "").rglob("*.pem")} == before
    cloud.host_ahead = datetime.timedelta()
    assert cloud.visit("h2", check_mode=check_mode)["changed"]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"days": 901}, "days (901) must be at most 900"),
        ({"names": ["fe80::1%eth0"]}, "has a scope"),
        ({"names": ["h1\n"]}, "neither a host name nor an IP address"),
        (
            {"identities": ["qemu"], "qemu_ca_certificate": "CA"},
            "qemu_ca_certificate: it contains no certificate in PEM",
        ),
        ({"qemu_ca_certificate": "CA"}, "ca_certificate is missing"),
        ({"ca_crl": "CRL"}, "ca_certificate is missing: ca_crl requires it to name the signing CAs"),
    ],
)
def test_what_would_not_be_used_is_refused(cloud: Cloud, said: dict[str, t.Any], problem: str) -> None:
    with pytest.raises(BadInput, match=re.escape(problem)):
        cloud.visit("h1", **said)
    assert not (cloud.place / "ca").exists()
