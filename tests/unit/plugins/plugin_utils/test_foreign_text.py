"""Trust for text in which there is nothing to execute; for no other."""

from __future__ import annotations

import typing as t

import pytest
from ansible.template import is_trusted_as_template

from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import trusted

RENAMED = "#jinja2: variable_start_string:'[%', variable_end_string:'%]'\n[% lookup('pipe', 'id') %]"


@pytest.mark.parametrize("text", ["{{ lookup('pipe', 'id') }}", "{% set x = 1 %}", "a {# b", RENAMED])
def test_templates_stay_inert(text: str) -> None:
    assert not is_trusted_as_template(trusted(text))


def test_texts_without_templates_are_trusted_throughout() -> None:
    value: dict[str, t.Any] = trusted({"title": "First", "tags": ["web"], "vcpus": 2, "both": ("a", "{{ b }}")})
    assert value == {"title": "First", "tags": ["web"], "vcpus": 2, "both": ["a", "{{ b }}"]}
    assert is_trusted_as_template(value["title"]) and is_trusted_as_template(value["tags"][0])
    assert [is_trusted_as_template(item) for item in value["both"]] == [True, False]
