"""What a call says of a disk: what it must not say together, and what size is meant."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_clone_spec

SILENT: dict[str, t.Any] = {
    "name": "web1.qcow2",
    "state": "present",
    "pool": "default",
    "image": None,
    "image_pool": None,
    "clone": None,
    "size": None,
    "format": None,
    "allow_shrink": False,
    "remove_storage": False,
    "reserve": None,
    "job_timeout": 1800,
    **dict.fromkeys(("url", "src", "origin", "checksum", "prune")),
}
MADE = {"image": "debian-12.qcow2"}
CONTENT = f"debian-12.{'0' * 12}.qcow2"

TAKEN: list[dict[str, t.Any]] = [
    MADE,
    {**MADE, "image_pool": "fast", "clone": "overlay", "size": "8GiB", "format": "qcow2"},
    {**MADE, "name": "web1.raw", "clone": "copy"},
    {**MADE, "name": "web1", "format": "raw", "clone": "copy"},
    {"image": "web1.qcow2", "image_pool": "fast"},
    {"size": "8GiB", "allow_shrink": True},
    {"name": "web1.raw", "size": "8GiB"},
    {**MADE, "state": "rebased", "image_pool": "fast"},
    {**MADE, "state": "rebased", "name": "web1.raw"},  # what is there decides
    {"state": "flattened"},
    {"state": "absent", "name": "web1", "remove_storage": True},
    {"size": "8GiB", "job_timeout": 1},
]
NOT_HERE = "it does not apply to state"
REFUSED: list[tuple[dict[str, t.Any], list[str]]] = [
    *(
        (
            {**MADE, option: "x"},
            [f"{option}: it imports an image into the pool; create a disk from that image in a separate task"],
        )
        for option in ("url", "src", "origin", "checksum", "prune")
    ),
    ({**MADE, "remove_storage": True}, [f"remove_storage: {NOT_HERE} present; omit it"]),
    (
        {**MADE, "state": "rebased", "clone": "copy", "size": "8GiB"},
        [f"clone: {NOT_HERE} rebased; omit it", f"size: {NOT_HERE} rebased; omit it"],
    ),
    (
        {**MADE, "state": "flattened", "allow_shrink": True},
        [f"allow_shrink: {NOT_HERE} flattened; omit it", f"image: {NOT_HERE} flattened; omit it"],
    ),
    ({"state": "absent", "size": "8GiB"}, [f"size: {NOT_HERE} absent; omit it"]),
    ({"state": "absent", "format": "raw"}, [f"format: {NOT_HERE} absent; omit it"]),
    (
        {"clone": "copy", "image_pool": "fast"},
        [
            "clone: it says how a disk is created from image; set image too",
            "image_pool: it says how a disk is created from image; set image too",
        ],
    ),
    (
        {"name": CONTENT, "size": "8GiB"},
        [
            f"name: {CONTENT} is the content of an image, which may back other disks and never changes; choose another name"
        ],
    ),
    *(
        (
            {"image": "web1.qcow2", "image_pool": pool},
            ["image: a disk cannot be created from itself; name and image are both web1.qcow2"],
        )
        for pool in (None, "default")
    ),
    ({"state": "flattened", "clone": "copy"}, [f"clone: {NOT_HERE} flattened; omit it"]),
    ({"state": "rebased"}, ["image: state rebased requires it as the new backing file"]),
    ({**MADE, "allow_shrink": True}, ["allow_shrink: it allows a smaller size; set size too"]),
    (
        {"name": "web1", "size": "8GiB"},
        ["format of web1 is unclear: end the name in .qcow2, .raw or .img, or set format"],
    ),
    ({**MADE, "name": "web1.raw"}, ["format: only qcow2 can have a backing file; set clone: copy for a raw disk"]),
    (
        {**MADE, "name": "web1.raw", "clone": "overlay"},
        ["format: only qcow2 can have a backing file; set clone: copy for a raw disk"],
    ),
    ({**MADE, "job_timeout": 0}, ["job_timeout: 0 must be at least 1 second"]),
]


@pytest.mark.parametrize("said", TAKEN, ids=str)
def test_what_goes_together_is_taken(said: dict[str, t.Any]) -> None:
    plan_clone_spec.size_bytes({**SILENT, **said})


@pytest.mark.parametrize(("said", "problems"), REFUSED, ids=str)
def test_what_does_not_go_together_is_refused(said: dict[str, t.Any], problems: list[str]) -> None:
    with pytest.raises(BadInput, match=r"\w") as refused:
        plan_clone_spec.size_bytes({**SILENT, **said})
    assert refused.value.problems == problems


def test_all_problems_are_told_at_once() -> None:
    output = {"name": "a/b", "image": "c/d", "size": "much", "reserve": "more", "job_timeout": 0, "url": "http://x"}
    with pytest.raises(BadInput, match=r"\w") as refused:
        plan_clone_spec.size_bytes({**SILENT, **output})
    result = refused.value.problems
    assert [problem.partition(":")[0] for problem in result[:4]] == ["name", "image", "reserve", "size"]
    assert [problem.partition(":")[0].partition(" ")[0] for problem in result[4:]] == ["url", "format", "job_timeout"]


@pytest.mark.parametrize(
    ("size", "wanted"),
    [(None, None), ("1GiB", 1024**3), (2, 2 * 1024**3), ("512B", 512), ("513B", 1024), ("1B", 512)],
)
def test_a_size_is_rounded_up_to_sectors(size: object, wanted: int | None) -> None:
    assert plan_clone_spec.size_bytes({**SILENT, **MADE, "size": size}) == wanted


@pytest.mark.parametrize(
    ("said", "is_disk"),
    [
        ({}, False),
        ({"format": "raw"}, False),
        ({"image_pool": "fast"}, False),
        ({"state": "rebased"}, True),
        ({"state": "flattened"}, True),
        ({"state": "absent"}, False),
        ({"state": "absent", "remove_storage": True}, True),
        *(({option: "x"}, True) for option in ("image", "size", "clone")),
    ],
    ids=str,
)
def test_whether_a_name_is_a_disk_or_an_image(said: dict[str, t.Any], is_disk: bool) -> None:
    assert plan_clone_spec.concerns({**SILENT, **said}) is is_disk


def test_the_format_is_what_is_said_or_what_the_name_ends_in() -> None:
    for name, form, wanted in (
        ("a.raw", None, "raw"),
        ("a.raw", "qcow2", "qcow2"),
        ("a", None, ""),
        ("a.img", "", "raw"),
    ):
        assert plan_clone_spec.format_of({"name": name, "format": form}) == wanted
