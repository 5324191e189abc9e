"""Every name that the guide from Salt Virt gives exists, and so does every command."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import typing as t

import pytest
import yaml

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions
from ansible_collections.corral.virt.tests.tools import payload, salt_table

ENTRIES = [(section, entry) for section in salt_table.SECTIONS for entry in salt_table.entries(section)]
COMMANDS = sorted({entry["here"] for _section, entry in ENTRIES if "here" in entry})
OTHER_MODULES = {"command", "ping", "setup"}
OTHER_PROGRAMS = {"ansible-inventory"}


def documented(module: str) -> dict[str, t.Any]:
    """The options of a module, as its documentation has them."""
    if module == "virt_domain":
        return {**actions.options("virt_domain"), "uri": {}}
    text = (payload.ROOT / f"plugins/modules/{module}.py").read_text()
    found = re.search(r'^DOCUMENTATION = r"""\n(.*?)"""', text, re.MULTILINE | re.DOTALL)
    assert found, module
    return {**(yaml.safe_load(found[1]).get("options") or {}), "uri": {}}


def names(name: str) -> bool:
    """Whether it is an option of a module, an argument of a playbook or a variable of a role."""
    place, colon, option = name.partition(":")
    if not colon:
        return place in actions.role_variables()
    if not place.startswith("virt_"):
        return option in actions.action(place).arguments
    options: t.Any = documented(place)
    for step in option.split("."):
        if step not in options:
            return False
        options = options[step].get("options") or options[step].get("suboptions") or {}
    return True


def test_the_data_has_only_what_the_tables_show() -> None:
    assert set(yaml.safe_load(salt_table.DATA.read_text())) == set(salt_table.SECTIONS)
    for section, entry in ENTRIES:
        assert set(entry) <= {"salt", "here", "see", "note", "missing"} and len(entry) > 1 and all(entry.values()), (
            section,
            entry,
        )


@pytest.mark.parametrize("section", salt_table.SECTIONS)
def test_no_word_of_salt_is_there_twice(section: str) -> None:
    words = [entry["salt"] for entry in salt_table.entries(section)]
    assert len(set(words)) == len(words)


def test_all_of_salt_virt_is_there() -> None:
    """In its last release 13, 82 and 16; six functions and a state of older releases come on top."""
    assert [len(salt_table.entries(section)) for section in ("runner", "module", "states")] == [13, 88, 17]


def test_every_further_name_exists() -> None:
    for section, entry in ENTRIES:
        for name in entry.get("see", ()):
            assert names(name), (section, entry["salt"], name)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_exists(command: str) -> None:
    program, *words = shlex.split(command)
    if program == "virsh":
        known(words[0])
    elif program == "ansible":
        module(words)
    elif program == "ansible-playbook":
        playbook([word for word in words if not word.startswith("--")])
    else:
        assert program in OTHER_PROGRAMS


def known(verb: str) -> None:
    """Whether virsh has it, where there is one."""
    if shutil.which("virsh"):
        subprocess.run(["virsh", "help", verb], check=True, capture_output=True)


def module(words: list[str]) -> None:
    """Whether a module has these options, and all that it requires."""
    name = words[words.index("-m") + 1]
    if name in OTHER_MODULES:
        return
    result = shlex.split(words[words.index("-a") + 1]) if "-a" in words else []
    given = {word.split("=", 1)[0] for word in result}
    options = documented(name)
    assert given <= set(options)
    assert {option for option, spec in options.items() if spec.get("required")} <= given


def playbook(words: list[str]) -> None:
    """Whether a playbook takes these arguments, and has all that it requires."""
    action = actions.action(words[0].removeprefix("corral.virt."))
    assert (payload.ROOT / f"playbooks/{action.name}.yml").exists()
    result = [words[number + 1] for number, word in enumerate(words) if word == "-e"]
    given = {one.split("=", 1)[0] for one in result if not one.startswith("{")}
    given |= {key for one in result if one.startswith("{") for key in yaml.safe_load(one)}
    assert given <= set(action.arguments)
    assert {name for name, argument in action.arguments.items() if argument.required} <= given
    for one in result:
        if not one.startswith("{"):
            name, _equals, value = one.partition("=")
            choices = action.arguments[name].spec.get("choices")
            assert not choices or value in choices


def test_the_guide_says_where_every_function_of_saltvirtweb_is() -> None:
    """What was on its page is on the page of the web console."""
    result = {entry["salt"]: entry.get("note", "") for entry in salt_table.entries("web")}
    on_the_page = ("VNC console in the browser (noVNC)", "drag and drop to migrate", "create form")
    assert all("web console" in result[name] for name in on_the_page)
