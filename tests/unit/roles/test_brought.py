"""A base that the destination cannot have lets the whole disk travel; any other failure to bring it ends the run."""

from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._model.image import Checksum, Image, Manifest, Source
from ansible_collections.corral.virt.plugins.module_utils._plan import image as plans
from ansible_collections.corral.virt.plugins.module_utils._plan import image_checks
from ansible_collections.corral.virt.tests.tools.payload import ROOT

PLACES = ("playbooks/tasks/move.yml", "roles/maintenance/tasks/move.yml")
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
    yield lambda: plans.refuse_stranger(IMAGE, OFFER.content, same=False)
    yield lambda: plans.replaced(IMAGE, {IMAGE.content_name(SUM.hex): "guest web1"})
    yield lambda: plans.replaced(IMAGE, {})
    yield lambda: image_checks.chosen(IMAGE, Source("origin", "qemu+tls://hyper1/system"), "default", [OFFER])


@pytest.mark.parametrize("place", PLACES)
def test_a_base_that_cannot_be_stood_on_does_not_end_the_run(place: str) -> None:
    (pattern,) = re.findall(r"is not search\('([^']+)'\)", (ROOT / place).read_text())
    for refuse in refusals():
        with pytest.raises(Refused, match=pattern):
            refuse()
    with pytest.raises(Refused, match="begins with the same digits") as other:
        image_checks.refuse_namesake(IMAGE, Manifest(**{**OFFER.__dict__, "checksum": f"sha256:{'2' * 64}"}))
    assert not re.search(pattern, str(other.value))
