"""A base that the destination cannot have lets the whole disk travel; any other failure to bring it ends the run."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused, Unverified
from ansible_collections.corral.virt.plugins.module_utils._image import plan_image, plan_image_checks
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Checksum, Image, Manifest, Source
from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value

SUM = Checksum("sha256", "0" * 64)
IMAGE = Image("a.qcow2", "/pool", "qcow2", None, SUM, current=False)
OFFER = Manifest(
    IMAGE.content_name(SUM.hex),
    "1" * 64,
    1,
    "https://example.org/a.qcow2.xz",
    str(SUM),
    "2026-01-01T00:00:00+00:00",
    as_published=False,
)


def refusals() -> t.Iterator[t.Callable[[], object]]:
    """Why virt_image does not bring what it was asked for."""
    yield lambda: plan_image.refuse_stranger(IMAGE, OFFER.content, same=False)
    yield lambda: plan_image.replaced(IMAGE, {IMAGE.content_name(SUM.hex): "guest web1"})
    yield lambda: plan_image.replaced(IMAGE, {})
    yield lambda: plan_image_checks.chosen(IMAGE, Source("origin", "qemu+tls://hyper1/system"), "default", [OFFER])


def test_a_file_that_may_be_another_image_is_told_apart() -> None:
    for refuse in refusals():
        with pytest.raises(Unverified, match="image"):
            refuse()
    with pytest.raises(Refused, match="begins with the same digits") as other:
        plan_image_checks.refuse_namesake(IMAGE, Manifest(**{**OFFER.__dict__, "checksum": f"sha256:{'2' * 64}"}))
    assert not other.value.facts


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        ({"failed": False}, False),
        ({"failed": True, "msg": "no", **Unverified.facts}, False),
        ({"failed": True, "msg": "no"}, True),
    ],
)
def test_a_base_that_cannot_be_stood_on_does_not_end_the_run(
    answer: dict[str, t.Any], ends: bool, tmp_path: Path
) -> None:
    [task] = yaml.safe_load((ROLES / "maintenance/tasks/images.yml").read_text())
    assert value(tmp_path, f"({task['failed_when']}) | bool", [], {task["register"]: answer}) is ends


@pytest.mark.parametrize("place", ["playbooks/tasks/move.yml", "roles/maintenance/tasks/move.yml"])
def test_bases_are_brought_by_the_same_task(place: str) -> None:
    file = ROLES.parent / place
    imported = [one["ansible.builtin.import_tasks"] for one in yaml.safe_load(file.read_text()) if "import" in str(one)]
    assert [(file.parent / one).resolve() for one in imported] == [(ROLES / "maintenance/tasks/images.yml").resolve()]
