"""A directory that is made on another host belongs to whom it belongs here, as far as both hosts know that user."""

from __future__ import annotations

import contextlib
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    libvirt_storage,
    libvirt_transfer,
    run_directories,
    xml_directory,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_directory import Access
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import access_there

DEBIAN, FEDORA = (64055, 106), (107, 36)
NVRAM = Access("0755", *DEBIAN)


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (NVRAM, Access("0755", 107, 36)),
        (Access("0770", 0, 106), Access("0770", 0, 36)),
        (Access("0700", 0, 0), Access("0700", 0, 0)),
        (Access("0755", 64055, 4), Access("0755", 107, 36)),
        (Access("0755", 0, 4), Access("0755", 0, 0)),
        (Access("0700", 1000, 1000), None),
        (None, None),
    ],
)
def test_the_user_of_qemu_has_another_number_there(here: Access | None, there: Access | None) -> None:
    assert access_there(here, DEBIAN, FEDORA) == there
    assert access_there(here, None, FEDORA) is None and access_there(here, DEBIAN, None) is None


MODEL = "<capabilities><host><secmodel><model>{}</model><baselabel type='kvm'>{}</baselabel></secmodel></host>{}"


@pytest.mark.parametrize(
    ("model", "label", "user"),
    [("dac", "+64055:+106", (64055, 106)), ("selinux", "+1:+1", None), ("dac", "root:root", None), ("dac", "", None)],
)
def test_who_runs_qemu(model: str, label: str, user: tuple[int, int] | None) -> None:
    assert xml_directory.qemu_user(MODEL.format(model, label, "</capabilities>")) == user
    assert xml_directory.qemu_user("<capabilities><host/></capabilities>") is None


def test_access_to_the_directory_of_a_pool() -> None:
    pool = xml_directory.new_pool("/srv/vars", NVRAM)
    assert "<mode>0755</mode>" in pool and xml_directory.access(pool) == NVRAM
    assert xml_directory.access(xml_directory.new_pool("/srv/vars")) is None


def test_only_a_directory_that_is_missing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """libvirt would change owner and mode of one that is there."""
    asked: list[tuple[Access | None, bool]] = []
    missing = True

    @contextlib.contextmanager
    def opened(_connection: object, _directory: str, xml: str, *, build: bool) -> t.Iterator[str]:
        asked.append((xml_directory.access(xml), build))
        if missing and not build:
            raise NotFound("cannot open directory: it does not exist")
        yield "pool"

    monkeypatch.setattr(libvirt_transfer, "opened", opened)
    monkeypatch.setattr(libvirt_transfer, "active_pools", lambda _connection: {})
    monkeypatch.setattr(
        libvirt_storage, "pool_xml", lambda _connection, _name: xml_directory.new_pool("/srv/vars", NVRAM)
    )
    labels = {"here": "+64055:+106", "there": "+107:+36"}
    monkeypatch.setattr(libvirt_query, "capabilities", lambda end: MODEL.format("dac", labels[end], "</capabilities>"))
    with run_directories.pool_like("there", "/srv/vars", "here", "vars") as pool:
        assert pool == "pool"
    assert asked == [(None, False), (Access("0755", 107, 36), True)]
    missing = False
    del asked[:]
    with run_directories.pool_like("there", "/srv/vars", "here", "vars"):
        assert asked == [(None, False)]
