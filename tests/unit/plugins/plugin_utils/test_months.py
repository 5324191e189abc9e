"""Two years and more of a cloud: no two hosts are ever unable to verify each other, whatever is renewed, replaced or left out."""

from __future__ import annotations

import datetime
import itertools
import os
import typing as t
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.plugin_utils._authorities import Authorities
from ansible_collections.corral.virt.tests.unit.plugins.plugin_utils.months import MONTH, Cloud

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the files belong to root")

DAY = datetime.timedelta(days=1)


@pytest.fixture(scope="session")
def keys() -> list[t.Any]:
    """RSA keys take their time: short ones serve all tests, in turn."""
    return [rsa.generate_private_key(public_exponent=65537, key_size=1024) for _number in range(24)]


@pytest.fixture
def cloud(tmp_path: Path, keys: list[t.Any], monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Three hosts that have nothing yet."""
    turn = itertools.cycle(keys)
    monkeypatch.setattr("ansible_collections.corral.virt.plugins.plugin_utils._ca.KEY_BITS", 1024)
    monkeypatch.setattr(rsa, "generate_private_key", lambda **_options: next(turn))
    for host in ("h1", "h2", "h3"):
        (tmp_path / host).mkdir()
    return Cloud(tmp_path)


def test_the_first_play_makes_all_and_the_second_nothing(cloud: Cloud) -> None:
    told = cloud.play()
    assert all(one["changed"] and not one["rolling"] for one in told.values())
    assert not cloud.refusals()
    told = cloud.play()
    assert not any(one["changed"] for one in told.values()), told


def test_four_years_month_by_month_and_a_roll_over(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first CA lives for four years; a host is off for a quarter, another one comes, a third gets a new address."""
    monkeypatch.setattr("ansible_collections.corral.virt.plugins.plugin_utils._ca.LIFE", 1460 * DAY)
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
    assert {*first["rolling"]} == {"libvirt", "qemu"} and first["rolling"]["libvirt"] == first["rolling"]["qemu"] == ["h2", "h3"]
    cloud.play("h1", "h2")
    assert not cloud.refusals()
    told = cloud.play("h1", "h2")
    assert told["h1"]["rolling"] == {"libvirt": ["h3"], "qemu": ["h3"]}, "nobody shows what h3 does not trust"
    assert not any(one["changed"] for one in told.values())
    told = cloud.play()
    assert not cloud.refusals()
    assert not any(one["rolling"] for one in told.values())
    assert (cloud.path("h1", "CA/cacert.pem")).read_text() == (cloud.place / "ca/libvirt/2/ca-cert.pem").read_text()
    assert not any(one["changed"] for one in cloud.play().values())


def test_restricted_cas_vouch_for_the_hosts_and_the_controller_and_refuse_others(cloud: Cloud) -> None:
    cloud.play(ca_constraints=["h1", "h2", "h3", "10.0.0.0/24"])
    assert not cloud.refusals()
    with pytest.raises(Refused, match=r"restricted to h1, h2, h3, controller, 10.0.0.0/24, and not for 192.0.2.1, h1.example"):
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
    told = cloud.play(ca_passphrase="correct horse", force=True)
    assert all(one["changed"] for one in told.values()) and not cloud.refusals()


def test_a_certificate_that_another_host_gives_up_meanwhile_is_still_seen(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
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
