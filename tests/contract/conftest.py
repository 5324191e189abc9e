"""A host for each test: libvirt's own test driver, prepared from a file; nothing of it outlives the connection."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.tests.golden.case import HOST_URI


@pytest.fixture
def connection() -> t.Iterator[t.Any]:
    """A hypervisor with one pool (default), one network (lan) and no guests."""
    with opened(HOST_URI, events=True) as opened_connection:
        yield opened_connection
