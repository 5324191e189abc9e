"""What an import of a network leaves out, and in which order its options are tried."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._network.fields_network import NETWORK_SCHEMA
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_import import imported

XML = "<network><name>lan</name><forward mode='nat'/><bridge name='virbr7'/><domain name='example.org'/></network>"
PLAIN = {"name": "lan", "state": "inactive", "autostart": True}
STATED: dict[str, t.Any] = {"mode": "nat", "bridge": "virbr7", "domain": {"name": "example.org"}}


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        ([], STATED),
        (["domain"], {"mode": "nat", "bridge": "virbr7"}),
        (["mode", "bridge", "domain"], {}),
    ],
)
def test_what_is_not_accepted_is_left_out(refused: list[str], expected: dict[str, t.Any]) -> None:
    found = Found("", persistent=True, autostart=True, xml=XML)
    assert imported(NETWORK_SCHEMA, "lan", found, lambda given: not {*refused} & {*given}) == {**PLAIN, **expected}


def test_an_option_is_tried_beside_those_before_it() -> None:
    """It may mean something only with them. All together come first."""
    tried: list[list[str]] = []

    def accepts(given: t.Mapping[str, t.Any]) -> bool:
        tried.append([option for option in given if option not in PLAIN])
        return len(tried) > 1

    found = Found("", persistent=True, autostart=True, xml=XML, live_xml=XML)
    assert imported(NETWORK_SCHEMA, "lan", found, accepts) == {**PLAIN, **STATED, "state": "active"}
    options = list(STATED)
    assert tried == [options, options[:1], options[:2], options]
