"""What a role makes of its variables: they are read by a play, as Ansible reads them."""

from __future__ import annotations

import atexit
import functools
import json
import re
import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.tests.tools import preloaded

__all__ = ["ROLES", "each", "home", "value", "values"]

ROLES = Path(__file__).parents[3] / "roles"


@functools.cache
def home() -> Path:
    """The same for all tests, which is what `preloaded` asks for; gone with them."""
    made = Path(tempfile.mkdtemp(prefix="corral-roles-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    settings = f"stdout_callback = ansible.builtin.minimal\ncollections_path = {ROLES.parent / '.cache'}\n"
    (made / "ansible.cfg").write_text(f"[defaults]\n{settings}")
    return made


def value(
    folder: Path,
    expression: str,
    files: t.Sequence[Path],
    known: t.Mapping[str, t.Any],
    *,
    host: str = "localhost",
    inventory: str = "all: {hosts: {localhost: {}}}",
    arguments: t.Sequence[str] = (),
) -> t.Any:
    """An expression's value on one host, with variables of these files and those that are `known`."""
    return values(folder, expression, files, known, inventory, arguments)[host]


def each(
    folder: Path,
    expression: str,
    files: t.Sequence[Path],
    cases: t.Iterable[t.Mapping[str, t.Any]],
    arguments: t.Sequence[str] = (),
) -> list[t.Any]:
    """An expression's value with the variables of each case: one play, in which a case is a host."""
    hosts = {f"case{number}": case for number, case in enumerate(cases)}
    found = values(folder, expression, files, {}, json.dumps({"all": {"hosts": hosts}}), arguments)
    return [found[host] for host in hosts]


def values(
    folder: Path,
    expression: str,
    files: t.Sequence[Path],
    known: t.Mapping[str, t.Any],
    inventory: str,
    arguments: t.Sequence[str] = (),
) -> dict[str, t.Any]:
    """The same on each host."""
    debug = {"ansible.builtin.debug": {"msg": f"{{{{ {{'value': {expression}}} }}}}"}}
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars_files": [str(file) for file in files],
        "vars": known,
        "tasks": [debug],
    }
    (folder / "play.yml").write_text(json.dumps([play]))
    (folder / "hosts.yml").write_text(inventory)
    place = home()
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(place),
        "LANG": "C.UTF-8",
        "ANSIBLE_CONFIG": str(place / "ansible.cfg"),
    }
    command = ["ansible-playbook", "-i", "hosts.yml", "play.yml", *arguments]
    done = preloaded.run(command, cwd=folder, env=environment, timeout_s=60, given=None)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = re.split(r"^(\S+) \| SUCCESS => ", done.stdout, flags=re.MULTILINE)[1:]
    found = zip(printed[::2], printed[1::2], strict=True)
    return {host: json.JSONDecoder().raw_decode(text)[0]["msg"]["value"] for host, text in found}
