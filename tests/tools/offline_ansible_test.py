"""Run ansible-test on this checkout, without containers and without its vendor's servers.

Usage: offline_ansible_test.py sanity|units ... Runs under the Python whose environment holds ansible-core.
ansible-test wants to stand in .../ansible_collections/corral/virt, so it gets a copy of what git knows or would add.
Of sanity, only what has changed since it passed is tested again, with what imports it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import passed
import pythons

ROOT = Path(__file__).parents[2]
CACHE = Path.home() / ".ansible/test/cache"
# What pip says about its work.
CHATTER = re.compile(
    r"Looking in |Collecting |Processing |Installing (collected|requirements)|Successfully installed|Using cached pip"
    r"|  (Downloading|Using cached|Preparing|Installing|Getting)|     .*eta |WARNING: Location "
)
# A change of these may change what is said of any other file.
OF_ALL = ("galaxy.yml", "meta/", "plugins/doc_fragments/", "tests/sanity/", "tests/tools/", "requirements")
# ansible-test fetches this script from a server of its own, but looks into its cache first.
GET_PIP = """
import os, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "pip-{version}-py3-none-any.whl"))
from pip._internal.cli.main import main
sys.exit(main(["install", "--upgrade"] + [a for a in sys.argv[1:] if a not in ("--no-setuptools", "--no-wheel")]))
"""


def seed_pip() -> None:
    """Put the pip this ansible-test asks for where it looks for it."""
    import ansible_test

    source = (Path(next(iter(ansible_test.__path__))) / "_internal/python_requirements.py").read_text()
    asked = re.search(r"pip=.([0-9.]+)", source)
    if not asked:
        sys.exit("Cannot find which pip ansible-test wants: its python_requirements.py has changed; adapt seed_pip()")
    script = CACHE / f"get_pip_{asked[1].replace('.', '_')}.py"
    if not script.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "-d", str(CACHE), f"pip=={asked[1]}"]
        subprocess.run(argv, check=True)
        script.write_text(GET_PIP.format(version=asked[1]))


def files() -> list[Path]:
    """What git tracks or would track; without git, all that make did not make."""
    argv = ["git", "ls-files", "-z", "-co", "--exclude-standard", "--deduplicate"]
    listing = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)
    if listing.returncode == 0:
        # the link back to here
        return [ROOT / name for name in listing.stdout.split("\0") if name and not name.startswith(".cache/")]
    made = {".git", ".cache", ".venv", ".ansible", "build", "__pycache__"}
    return [path for path in ROOT.rglob("*") if path.is_file() and not made & set(path.relative_to(ROOT).parts)]


def copy(to: Path) -> None:
    """Copy the checkout; a file that somebody removes meanwhile is none of it."""
    for path in files():
        if path.is_file() or path.is_symlink():
            target = to / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)


def environment(links: Path) -> dict[str, str]:
    """This environment's tools, then real interpreters: a shim named python3.x that does not run would be fatal."""
    own = Path(sys.executable).parent
    links.mkdir()
    for number, python in pythons.found().items():
        (links / f"python{number}").symlink_to(python)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PYTEST_"))}
    return {**env, "PATH": os.pathsep.join([str(own), str(links), env["PATH"]])}


def run(argv: list[str]) -> int:
    """Run ansible-test with these arguments in a copy of the checkout; return its exit code."""
    seed_pip()
    with tempfile.TemporaryDirectory(prefix="corral-test-") as scratch:
        tree = Path(scratch, "ansible_collections/corral/virt")
        copy(tree)
        # Where tests that run Ansible's programs look for the collection, as `make link` makes it here.
        (tree / ".cache").mkdir()
        (tree / ".cache/ansible_collections").symlink_to("../../../../ansible_collections")
        env = environment(Path(scratch, "bin"))
        pipe, out = subprocess.PIPE, subprocess.STDOUT
        with subprocess.Popen(["ansible-test", *argv], cwd=tree, env=env, stdout=pipe, stderr=out, text=True) as test:
            for line in test.stdout or ():
                if not CHATTER.match(line):
                    print(line, end="", flush=True)
        return test.returncode


def sanity(argv: list[str]) -> int:
    """Run ansible-test sanity on what it has not passed; return its exit code."""
    check = passed.Check(
        "sanity-" + hashlib.sha256(" ".join(argv).encode()).hexdigest()[:8],
        [*argv, *map(str, pythons.found().values())],
    )
    before, now = check.passed(), passed.hashes(files())
    changed = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    if before and not changed:
        print("nothing has changed since sanity passed")
        return 0
    whole = not before or before.keys() - now.keys() or any(name.startswith(OF_ALL) for name in changed)
    code = run([*argv, *([] if whole else sorted(passed.with_importers(changed, now)))])
    if code == 0 and now == passed.hashes(files()):
        check.note(now)
    return code


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit((sanity if sys.argv[1] == "sanity" else run)(sys.argv[1:]))
