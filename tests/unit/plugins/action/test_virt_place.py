"""What the action reads from a guest's description."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.action import virt_place
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput


def test_apart_is_the_word_that_tags_hold() -> None:
    """A number meets its tag; what could be no tag is refused before anything is placed."""
    [guest] = virt_place._guests([{"name": "web1", "apart": 1}])
    assert guest.apart == "1"
    with pytest.raises(BadInput, match="apart of web1: 'a b' is not a valid name"):
        virt_place._guests([{"name": "web1", "apart": "a b"}])
