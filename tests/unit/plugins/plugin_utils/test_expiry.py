"""What is said in every play of certificates that somebody forgot."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

from ansible_collections.corral.virt.plugins.plugin_utils._report.expiry_warnings import expiry_warnings

NOW = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)


def seen(place: Path, name: str, libvirt: str, qemu: str, *, ca: str = "2036-01-01", renew_before: int = 30) -> None:
    output = {"ends": {"libvirt": f"{libvirt}T12:00:00Z", "qemu": f"{qemu}T12:00:00Z"}, "renew_before": renew_before}
    (place / "hosts").mkdir(exist_ok=True)
    (place / f"hosts/{name}.json").write_text(json.dumps({**output, "authorities": {"libvirt": f"{ca}T12:00:00Z"}}))


def test_each_day_and_each_ca_is_one_sentence(tmp_path: Path) -> None:
    assert not expiry_warnings(str(tmp_path / "nothing"), now=NOW)
    seen(tmp_path, "h1", "2027-10-01", "2027-10-02")
    seen(tmp_path, "h2", "2027-10-01", "2026-12-21")
    seen(tmp_path, "h3", "2026-12-21", "2027-10-02")
    seen(tmp_path, "h4", "2026-12-21", "2027-10-02", renew_before=20)
    seen(tmp_path, "h5", "2026-11-20", "2026-12-21")
    (tmp_path / "hosts/h6.json").write_text("damaged")
    assert [sentence.partition(";")[0] for sentence in expiry_warnings(str(tmp_path), now=NOW)] == [
        "certificates of h5 expired on 2026-11-20",
        "certificates of h2, h3 expire on 2026-12-21",
    ]
    seen(tmp_path, "h1", "2027-10-01", "2027-10-02", ca="2027-02-01")
    assert not [sentence for sentence in expiry_warnings(str(tmp_path), now=NOW) if "CA" in sentence], (
        "others know a later one"
    )
    for name in ("h1", "h2", "h3", "h4", "h5"):
        seen(tmp_path, name, "2027-10-01", "2027-10-02", ca="2027-02-01")
    assert expiry_warnings(str(tmp_path), now=NOW) == [
        "the CA of libvirt expires on 2027-02-01; provide a new one (see guide_tls)"
    ]
