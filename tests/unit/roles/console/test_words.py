"""How the page writes what guests bring: names that differ look different, and fields are what their attributes say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.corral.virt.roles.console.files.corral_console import policy

STATIC = Path(policy.__file__).parent / "static"
NODE = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js, as npm does")
PROGRAM = """import { shown } from %s;
console.log(JSON.stringify(%s.map(shown)));
"""
LOOK_ALIKE = [
    "web1",
    " web1",
    "web1 ",
    "we\u200bb1",
    "we\u200db1",
    "\ufeffweb1",
    "web\u00a01",
    "web 1",
    "web  1",
    "web\u20031",
    "web\u00ad1",
    "\u202eweb1",
    "web1\u200f",
    "web\u20661\u2069",
    "web\t1",
    "web1\u3164",
    "web1\ufe0f",
    "web\u034f1",
    "web1\U000e0041",
    "web1\u2800",
    "\u27e8U+200B\u27e9web1",
    "\u200bweb1",
    "\u2420web1",
]


@NODE
def test_names_that_differ_by_what_nobody_sees_look_different() -> None:
    program = PROGRAM % (json.dumps((STATIC / "words.js").as_uri()), json.dumps(LOOK_ALIKE))
    command = ["node", "--input-type=module", "-e", program]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    visible = re.compile(r"[\x21-\x7e\u27e8\u27e9\u2420]+( [\x21-\x7e\u27e8\u27e9\u2420]+)*")
    assert [name for name in told if not visible.fullmatch(name)] == []
    assert len(set(told)) == len(LOOK_ALIKE)
    assert told[0] == "web1" and told[7] == "web 1", "what is seen stays as it is"
    assert "\u27e8U+200B\u27e9" in told[3] and told[1] == "\u2420web1"


@NODE
def test_nothing_used_is_not_said_of_what_nobody_knows() -> None:
    """Of a disk of a guest that runs, libvirt tells how far it was written since the start: often 0."""
    disks = [
        {"format": "qcow2", "allocation_bytes": 0, "physical_bytes": 196 << 10, "capacity_bytes": 1 << 30},
        {"format": "qcow2", "allocation_bytes": 5 << 30, "physical_bytes": 3 << 30},
        {"format": "raw", "allocation_bytes": 2 << 20, "physical_bytes": 1 << 30},
        {"format": "raw", "allocation_bytes": 0, "physical_bytes": 1 << 30},
        {"format": "raw"},
    ]
    program = PROGRAM % (json.dumps((STATIC / "words.js").as_uri()), json.dumps(disks))
    command = ["node", "--input-type=module", "-e", program.replace("shown", "diskUsed")]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert told == ["196 KiB", "3 GiB", "2 MiB", "not known", "not known"]


@NODE
def test_a_page_tells_what_would_start_a_guest_and_why_it_is_where_it_is() -> None:
    ha = {"mode": "restart", "priority": 5}
    history = [
        {"at": "t1", "from": "", "to": "a", "why": "saved"},
        {"at": "t2", "from": "a", "to": "b", "why": "recovered from a"},
        {"at": "t3", "from": "b", "to": "c", "why": "migrated by Pacemaker"},
    ]
    kept = {"directory": "/srv", "owner": "c since t3", "resource": "", "problem": "", "history": history}
    guests = [
        {"ha": None},
        {"ha": {**ha, "kept": None}},
        {"ha": {**ha, "kept": kept}},
        {"ha": {**ha, "kept": {**kept, "resource": "guest-g", "history": history[:1]}}},
        {"ha": {**ha, "kept": {**kept, "problem": "its owner is b"}}},
    ]
    program = PROGRAM % (json.dumps((STATIC / "words.js").as_uri()), json.dumps(guests))
    command = ["node", "--input-type=module", "-e", program.replace("shown", "protectionOf")]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert told[0] is None
    begins = "restart, priority 5, "
    nobody = "by nobody, as far as is known: its definition is not kept"
    assert [one["words"].removeprefix(begins) for one in told[1:]] == [
        nobody,
        "by the playbook recover",
        "by Pacemaker (guest-g)",
        "but its owner is b",
    ]
    assert [one["bad"] for one in told[1:]] == [True, False, False, True]
    assert told[2]["last"] == "t2 from a to b: recovered from a" and told[2]["place"] == "/srv/.corral/guests"
    assert not told[3].get("last")


def test_an_attribute_that_is_false_is_not_given_as_a_text() -> None:
    """Preact sets properties, and each text is true: `spellcheck="false"` checked the spelling."""
    wrong = {
        path.name: found
        for path in STATIC.glob("*.js")
        if (found := re.findall(r'\s((?!aria-|data-)[\w-]+="(?:true|false)")', path.read_text()))
    }
    assert wrong == {}
