"""Make the documentation's pages: `build/site/html/index.html`. Fails on a warning, a dead internal link and a missing picture.

With the word `links`, ask the servers of all external links instead, and fail on those that do not answer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from lxml import html

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions
from ansible_collections.corral.virt.tests.tools.arguments_table import default, meaning, values

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build/site"
SOURCES, PAGES = SITE / "rst", SITE / "html"


def playbooks() -> str:
    """The reference of the playbooks: a section for each action of the catalogue."""
    text = [
        "Playbooks",
        "=========",
        "",
        "Made from the action catalogue. Run each as ``ansible-playbook corral.virt.NAME``, with",
    ]
    text += [
        "its arguments as ``-e NAME=VALUE``. Every playbook also takes ``virt_group``, the group of the hypervisors.",
        "",
    ]
    for name in actions.names():
        action = actions.action(name)
        destructive = (
            " A mistake costs something: guests that a pattern or a tag matches must be confirmed."
            if action.destructive
            else ""
        )
        text += [f".. _playbook_{name}:", "", name, "-" * len(name), "", f"{action.description}.{destructive}", ""]
        text += [f"Acts on: {action.kind}.", ""]
        shown = [each for each in action.arguments.values() if not each.option and each.name != "virt_group"]
        if action.options_of:
            text += [
                f"It also takes options of :ansplugin:`corral.virt.{action.options_of['module']}#module` by their names.",
                "",
            ]
        if shown:
            text += [".. list-table::", "   :header-rows: 1", "   :widths: 20 25 15 40", ""]
            rows = [("Argument", "Values", "Default", "Meaning")]
            rows += [(f"``{each.name}``", values(each), default(each), meaning(each)) for each in shown]
            text += [f"   {'* -' if at == 0 else '  -'} {cell}" for row in rows for at, cell in enumerate(row)] + [""]
    return "\n".join(text)


def write_sources() -> None:
    """What Sphinx reads: the start page, the playbooks, and all that antsibull-docs writes of the collection."""
    shutil.rmtree(SITE, ignore_errors=True)
    (SOURCES / "collection").mkdir(parents=True, mode=0o755)
    (SOURCES / "collection").chmod(0o755)
    shutil.copy(ROOT / "docs/site/index.rst", SOURCES)
    shutil.copytree(ROOT / "docs/docsite/pictures", SOURCES / "pictures")
    (SOURCES / "playbooks.rst").write_text(playbooks())
    where = ("--use-current", "--squash-hierarchy", "--fail-on-error", "--dest-dir", str(SOURCES / "collection"))
    subprocess.run(
        [sys.executable, ROOT / "tests/tools/docs.py", "collection", *where, "corral.virt"],
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache")},
        check=True,
    )


def dead_links(pages: Path) -> Iterator[str]:
    """Links and pictures of the pages that lead to nothing in them."""
    documents = {path: html.parse(str(path)) for path in sorted(pages.rglob("*.html"))}
    names = {path: {*document.xpath("//@id"), *document.xpath("//@name")} for path, document in documents.items()}
    for path, document in documents.items():
        for link in document.xpath("//a/@href | //img/@src | //link/@href | //script/@src"):
            address = urllib.parse.urlsplit(str(link))
            if address.scheme or address.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(address.path)).resolve() if address.path else path
            if not target.exists():
                yield f"{path.relative_to(pages)}: {link} does not exist"
            elif address.fragment and target in names and urllib.parse.unquote(address.fragment) not in names[target]:
                yield f"{path.relative_to(pages)}: {link} has no such place"


def sphinx(builder: str, out: Path, *options: str) -> int:
    """Exit code of Sphinx."""
    command: list[str | Path] = [
        "sphinx-build",
        "-q",
        "-b",
        builder,
        "-j",
        "auto",
        *options,
        "-c",
        ROOT / "docs/site",
        SOURCES,
        out,
    ]
    return subprocess.run(command, check=False).returncode


def links() -> int:
    """Ask for every external link. Where no server at all answers, the machine has no way out, and no link is judged."""
    write_sources()
    sphinx("linkcheck", SITE / "links", "-Q")
    lines = (SITE / "links/output.json").read_text().splitlines()
    found = [each for each in map(json.loads, lines) if urllib.parse.urlsplit(each["uri"]).netloc]
    asked = [each for each in found if each["status"] not in ("ignored", "unchecked", "local")]
    dead = [each for each in asked if each["status"] in ("broken", "timeout")]
    if asked and len(dead) == len(asked):
        print(f"No link is checked: none of {len(asked)} pages answers from this machine; {asked[0]['info']}")
        return 1
    for each in dead:
        print(f"{each['filename']}:{each['lineno']}: {each['uri']}: {each['info']}")
    print(f"{len(asked) - len(dead)} of {len(asked)} external links answer")
    return 1 if dead else 0


def main() -> int:
    """Make the pages; the exit code says whether they are whole."""
    write_sources()
    if sphinx("html", PAGES, "-W", "--keep-going"):
        print("Cannot make the pages: sphinx-build failed, with what is printed above")
        return 1
    dead = list(dead_links(PAGES))
    print("\n".join(dead) or f"file://{PAGES}/index.html")
    return 1 if dead else 0


if __name__ == "__main__":
    try:
        sys.exit(links() if sys.argv[1:] == ["links"] else main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"Cannot make the pages: {error.cmd[0]} exited with {error.returncode}")
