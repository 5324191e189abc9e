"""Where the backing files of disks are told: what a guest may have written is not believed."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._storage.plan_image_trust import (
    DefinedFiles,
    HeaderTrust,
    trust,
)


def volume(path: str, backing: str | None = None, form: str | None = None) -> dict[str, t.Any]:
    return {"path": path, "backing_path": backing, "backing_format": form}


def guest(*disks: str, raw: t.Collection[str] = ()) -> DefinedFiles:
    return DefinedFiles("guest web1", (*disks, *raw), raw, below=(), others=())


@pytest.mark.parametrize(
    ("documents", "without", "believed", "untrusted"),
    [
        ([], [], ["/a", "/b"], {"/base.raw"}),
        ([guest("/a")], [], ["/a", "/b"], {"/base.raw"}),
        # The guest may have written a header into its raw disk.
        ([guest(raw=["/a"])], [], ["/b"], {"/a", "/base.raw"}),
        ([guest("/b", raw=["/a"])], [], ["/b"], {"/a", "/base.raw"}),
        # Somebody reads it as an image: what it names is opened.
        ([guest(raw=["/a"]), guest("/a")], [], ["/a", "/b"], {"/base.raw"}),
        ([guest("/a"), guest(raw=["/a"])], [], ["/a", "/b"], {"/base.raw"}),
        ([guest(raw=["/a"]), guest(raw=["/a"])], [], ["/b"], {"/a", "/base.raw"}),
        # A volume by another of its names.
        ([guest(raw=["/link/a"])], [], ["/b"], {"/link/a", "/base.raw"}),
        ([], ["/b"], ["/a"], {"/base.raw"}),
        ([guest(raw=["/a"])], ["/link/b"], [], {"/a", "/base.raw"}),
    ],
)
def test_what_tells_the_backing_files(
    documents: list[DefinedFiles], without: list[str], believed: list[str], untrusted: set[str]
) -> None:
    volumes = [volume("/a", "/base.qcow2", "qcow2"), volume("/b", "/base.raw", "raw")]
    result = trust(volumes, documents, without=without, real=lambda path: path.removeprefix("/link"))
    assert [one["path"] for one in result.volumes] == believed
    assert result.untrusted == untrusted
    assert result.known == {"/a", "/b"}, "of the others, too: their first bytes are not read"


def test_nothing_is_known_of_nothing() -> None:
    assert trust([], []) == HeaderTrust([], set(), set())
