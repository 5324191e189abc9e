"""The list of mutants that count as equivalent names mutants that there are, each once, with a reason."""

from __future__ import annotations

import collections
import functools
import sys

import pytest

pytest.importorskip("libcst")

from ansible_collections.corral.virt.tests.tools import equivalents, payload

sys.path.insert(0, str(equivalents.LIST.parent))
from mutants import mutants

ENTRIES = list(equivalents.read().values())


@functools.cache
def found(file: str) -> collections.Counter[equivalents.Key]:
    """All mutants of a file, by what tells them apart."""
    return collections.Counter(map(equivalents.key, mutants((payload.ROOT / file).read_text(), file)))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.file}:{entry.function}")
def test_an_entry_is_one_mutant(entry: equivalents.Equivalent) -> None:
    assert found(entry.key[0])[entry.key] == 1, (
        "the line was changed: look again whether it is equivalent, or remove it"
    )
    assert entry.reason.endswith(".") and len(entry.reason.split()) > 3
