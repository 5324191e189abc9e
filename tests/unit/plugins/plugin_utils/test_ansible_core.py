"""Who has an older ansible-core is told so in a sentence."""

from __future__ import annotations

import sys
import types

import pytest

MODULE = "ansible_collections.corral.virt.plugins.plugin_utils._controller.ansible_core"


def test_an_older_ansible_core_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """By SystemExit: what is an Exception becomes a traceback, or a warning after which Ansible goes on."""
    monkeypatch.setitem(sys.modules, "ansible.template", types.ModuleType("ansible.template"))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(
        SystemExit, match=r"requires ansible-core 2.19 or newer, .*pip install 'ansible-core>=2.19'"
    ) as told:
        __import__(MODULE)
    assert len(str(told.value).splitlines()) == 1
