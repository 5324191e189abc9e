"""Documentation is as what it is about."""

from __future__ import annotations

import re
import textwrap
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.plugins.doc_fragments.domain import ModuleDocFragment
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_domain import DOMAIN
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import GUEST_OPTIONS
from ansible_collections.corral.virt.plugins.module_utils._network.fields_network import NETWORK
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Row, every
from ansible_collections.corral.virt.plugins.modules import virt_network
from ansible_collections.corral.virt.tests.tools import (
    arguments_table,
    catalogue_table,
    commands_table,
    live_table,
    looks_table,
    payload,
    reach_table,
    salt_table,
)
from ansible_collections.corral.virt.tests.tools.guide_table import Table


@pytest.mark.parametrize(
    "table",
    [
        live_table.TABLE,
        catalogue_table.TABLE,
        commands_table.TABLE,
        arguments_table.TABLE,
        looks_table.TABLE,
        reach_table.TABLE,
        *salt_table.TABLES.values(),
    ],
    ids=lambda table: table.tool + table.part,
)
def test_a_table_is_as_what_it_is_made_from(table: Table) -> None:
    text = table.guide.read_text()
    assert table.text() in text, f"make it anew: PYTHONPATH=.cache python tests/tools/{table.tool}.py --write"
    assert table.written(text) == text


def test_defaults_of_the_group_reach_all_that_take_a_uri() -> None:
    """And nobody else: who does not know it refuses it."""
    taking = {path.stem for path in payload.modules() if "URI_OPTION" in path.read_text()}
    groups = yaml.safe_load((payload.ROOT / "meta/runtime.yml").read_text())["action_groups"]
    assert set(groups["virt"]) == taking


def test_the_readme_names_all_that_there_is_and_nothing_else() -> None:
    rows = dict(re.findall(r"^\| (\w+) \| (.*) \|$", (payload.ROOT / "README.md").read_text(), re.MULTILINE))
    there = {
        "modules": {path.stem for path in payload.modules()},
        "roles": {path.name for path in (payload.ROOT / "roles").iterdir() if path.is_dir()},
        "playbooks": {path.stem for path in (payload.ROOT / "playbooks").glob("*.yml")},
    }
    named = {kind: re.findall(r"`(\w+)`", rows[kind]) for kind in there}
    assert {kind: sorted(names) for kind, names in there.items()} == {
        kind: sorted(each) for kind, each in named.items()
    }


_BLOCKS = {
    ".rst": re.compile(r"^\.\. code-block:: yaml\n\n((?:(?: +.*)?\n)+)", re.MULTILINE),
    ".md": re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL),
    ".py": re.compile(r'^EXAMPLES = r"""(.*?)"""', re.MULTILINE | re.DOTALL),
}
_PLACES = ("README.md", "docs/docsite/rst/*.rst", "roles/*/README.md", "plugins/*/*.py")
SHOWN = [
    path
    for place in _PLACES
    for path in sorted(payload.ROOT.glob(place))
    if _BLOCKS[path.suffix].search(path.read_text())
]


def _booleans(node: yaml.Node | None) -> t.Iterator[str]:
    """As they are written."""
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:bool":
        yield node.value
    for part in node.value if isinstance(node, yaml.CollectionNode) else ():
        for one in part if isinstance(part, tuple) else (part,):
            yield from _booleans(one)


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_word_that_yaml_takes_for_a_boolean_is_none(path: Path) -> None:
    """`name: Off` is false."""
    for block in _BLOCKS[path.suffix].findall(path.read_text()):
        for document in yaml.compose_all(textwrap.dedent(block)):
            assert set(_booleans(document)) <= {"true", "false"}


def _documented(options: t.Mapping[str, t.Any], below: str) -> t.Iterator[str]:
    for name, option in options.items():
        yield name
        yield from (f"{name}.{one}" for one in _documented(option.get(below) or {}, below))


def test_every_option_of_a_guest_is_documented() -> None:
    """A row without a text would show only when somebody asks for the documentation."""
    result = yaml.safe_load(vars(ModuleDocFragment)["DOCUMENTATION"])["options"]
    assert set(_documented(result, "suboptions")) == set(_documented(GUEST_OPTIONS, "options"))


@pytest.mark.parametrize(
    ("documentation", "table"),
    [(vars(ModuleDocFragment)["DOCUMENTATION"], DOMAIN), (virt_network.DOCUMENTATION, NETWORK)],
    ids=["guest", "network"],
)
def test_the_libvirt_that_a_field_requires_is_documented(documentation: str, table: t.Mapping[str, Row]) -> None:
    options = yaml.safe_load(documentation)["options"]
    told = {}
    for path, _field, row in every(table):
        if row.since:
            text = _description(options, path.replace("[]", "").split("."))
            told[path] = "Requires libvirt {}.{} or later.".format(*row.since) in text
    assert told and all(told.values()), told


def _description(options: t.Mapping[str, t.Any], path: t.Sequence[str]) -> str:
    """Of an option; or, where a number may stand for a dictionary, what that says of its key."""
    option = options[path[0]]
    if len(path) > 1 and "suboptions" in option:
        return _description(option["suboptions"], path[1:])
    return next(
        (line for line in option["description"] if f"C({'.'.join(path[1:])})" in line), str(option["description"])
    )


DOCUMENTED = [
    path
    for place in ("modules", "inventory", "doc_fragments", "filter", "callback")
    for path in sorted((payload.ROOT / "plugins" / place).glob("*.py"))
]
_TEXTS = re.compile(r'^ *(?:DOCUMENTATION|EXAMPLES|RETURN|_TEXTS) = r?"""(.*?)"""', re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", DOCUMENTED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_documentation_says_options_and_not_rows(path: Path) -> None:
    """A row of a size is called `memory.maximum_kib`; what a user writes and reads is `memory.maximum`."""
    texts = _TEXTS.findall(path.read_text())
    assert texts, "it documents something"
    assert re.findall(r"\S*_kib\b", "".join(texts)) == []
