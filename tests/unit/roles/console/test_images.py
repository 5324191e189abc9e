"""Images by the names of volumes."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.roles.console.files.corral_console.images import merged


def volume(name: str, size: int = 1) -> dict[str, t.Any]:
    return {"name": name, "capacity_bytes": size, "allocation_bytes": size}


def test_a_name_is_an_image_when_a_content_of_it_is_there() -> None:
    first = [volume("debian-12.qcow2", 7), volume("debian-12.0123456789ab.qcow2"), volume("web1.qcow2")]
    second = [volume("debian-12.qcow2"), volume("debian-12.0123456789ab.qcow2"), volume("debian-12.ffffffffffff.qcow2")]
    found = merged([("b", "default", first), ("c", "fast", second), ("d", "default", [volume("debian-12.qcow2")])])
    assert [image["name"] for image in found] == ["debian-12.qcow2"]
    assert [(place["host"], place["pool"], len(place["contents"])) for place in found[0]["places"]] == [
        ("b", "default", 1),
        ("c", "fast", 2),
    ]
    assert found[0]["places"][0]["bytes"] == 7
