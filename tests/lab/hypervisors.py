"""A lab made hypervisors by the collection's own roles, and the ways a user has to it."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path

import jinja2
import yaml

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.tools import preloaded

__all__ = [
    "HERE",
    "IMAGES",
    "ROLES",
    "ROOT",
    "Hypervisors",
    "allowed_to_fault",
    "guide",
    "hypervisors",
    "packages",
    "until",
]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
IMAGES = "/var/lib/libvirt/images"
COMMAND_S = 1800  # for one that hangs
ROLES = ("hypervisor", "bridge", "firewall", "pki", "storage")
# What tests, and role bridge where it writes for ifupdown, need beyond the packages of role hypervisor.
WITNESSES = ("bridge-utils", "glusterfs-server", "sshfs", "swtpm", "swtpm-tools", "xfsprogs")
KEPT_CODE = ROOT / "tests/tools/kept_code/sitecustomize.py"
# Python reads it at its start, on a host that runs hundreds of modules.
KEEP_CODE = (
    "cd /usr/lib/python3/dist-packages && echo import corral_lab_code >corral_lab_code.pth && cat >corral_lab_code.py"
)
USERFAULTFD = Path("/proc/sys/vm/unprivileged_userfaultfd")


@dataclasses.dataclass(frozen=True)
class Hypervisors:
    """Commands run as a user of the lab would run them; each fails the test when it ends badly, or (`ok=False`) when it
    does not.

    For work on tests: CORRAL_LAB_KEPT names a lab that is up; it is used for whatever test, and kept.
    """

    test: str
    kept: str | None = dataclasses.field(default_factory=lambda: os.environ.get("CORRAL_LAB_KEPT"))

    @property
    def name(self) -> str:
        """The lab's."""
        return self.kept or self.test

    @property
    def folder(self) -> Path:
        """What the lab tells its users: inventory, ssh_config, ansible.cfg."""
        return ROOT / "build/lab" / self.name

    @property
    def environment(self) -> dict[str, str]:
        """For Ansible."""
        return {**os.environ, "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}

    @property
    def hosts_only(self) -> dict[str, str]:
        """The same, with an inventory that asks no hypervisor for its guests, which takes half of a short command's
        time.
        """
        return {**self.environment, "ANSIBLE_INVENTORY": self.ask_nobody[1]}

    @property
    def ask_nobody(self) -> tuple[str, str]:
        """The same for one command."""
        return "-i", str(self.folder / "inventory/hosts.yml")

    @property
    def gateway(self) -> str:
        """This machine's address as the hosts see it."""
        return self.variable("virt_lab_gateway")

    def variable(self, name: str) -> str:
        """What the inventory says of the first host."""
        return t.cast(
            str, json.loads(self._done("ansible-inventory", "--host", "hyper1", env=self.hosts_only)[0].stdout)[name]
        )

    def run(self, *command: str | Path, ok: bool = True, timeout_s: int = COMMAND_S, given: str | None = None) -> str:
        """What a command printed; with errors where it was to fail."""
        done, text = self._done(*command, ok=ok, timeout_s=timeout_s, given=given)
        return done.stdout if ok else text

    def _done(
        self,
        *command: str | Path,
        ok: bool = True,
        timeout_s: int = COMMAND_S,
        given: str | None = None,
        env: dict[str, str] | None = None,
    ) -> tuple[subprocess.CompletedProcess[str], str]:
        done = preloaded.run(command, cwd=ROOT, env=env or self.environment, timeout_s=timeout_s, given=given)
        text = done.stdout + done.stderr
        assert (done.returncode == 0) == ok, f"{command} ended with {done.returncode}:\n{text[-6000:]}"
        return done, text

    def start(self, *command: str | Path) -> subprocess.Popen[str]:
        """A command in the background, in a process group of its own."""
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,  # of its own: what others do to theirs, such as not to block, is theirs
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pipesize=2**20,  # a test reads it at the end; whoever writes more than fits waits until then
            text=True,
            start_new_session=True,
        )

    def on(self, host: str, command: str, *, ok: bool = True, given: str | None = None) -> str:
        """A shell command on a host."""
        return self.run("ssh", "-F", self.folder / "ssh_config", "--", host, command, ok=ok, given=given).strip()

    def module(
        self, called: str, /, *flags: str, ok: bool = True, timeout_s: int = COMMAND_S, **arguments: t.Any
    ) -> str:
        """Call a module on the first host: what it says, in one line."""
        command = ("ansible", "hyper1", "-m", called, "-a", json.dumps(arguments), *flags)
        done, text = self._done(*command, ok=ok, timeout_s=timeout_s, env=self.hosts_only)
        return re.sub(r"\s+", " ", done.stdout if ok else text)

    def play(
        self, *tasks: dict[str, t.Any], hosts: str = "hyper1", flags: Sequence[str] = (), ok: bool = True, **more: t.Any
    ) -> str:
        """Run tasks; all that was printed. `more` is of the play."""
        book = self.folder / "book.json"
        preloaded.link_actions(self.folder)
        book.write_text(json.dumps([{"hosts": hosts, "gather_facts": False, "tasks": tasks, **more}]))
        return self._done("ansible-playbook", *flags, book, ok=ok, env=self.hosts_only)[1]

    def tell(self, *tasks: dict[str, t.Any], hosts: str = "hyper", check: bool = False) -> dict[str, t.Any]:
        """Run tasks; what they registered as `told`, by host."""
        return self.tell_all(*tasks, hosts=hosts, flags=["--check"] if check else [])[0]

    def tell_all(
        self, *tasks: dict[str, t.Any], hosts: str = "hyper", flags: Sequence[str] = ()
    ) -> tuple[dict[str, t.Any], str]:
        """The same, and all that was printed."""
        dest = f"{self.folder}/told-{{{{ inventory_hostname }}}}"
        keep = {"keep": {"content": "{{ told | ansible.builtin.to_json }}", "dest": dest}}
        for old in self.folder.glob("told-*"):
            old.unlink()
        printed = self.play(*tasks, keep, hosts=hosts, flags=flags)
        return {
            path.name.removeprefix("told-"): json.loads(path.read_text()) for path in self.folder.glob("told-*")
        }, printed

    def four_steps(
        self, module: str, options: dict[str, t.Any], look: str, *, host: str = "hyper1", looks_at: Sequence[str] = ()
    ) -> list[dict[str, t.Any]]:
        """Check, do, check again, do again, in one play; the result of the first run, and the two that change nothing.
        A check tells the same steps and diff as the run, and changes nothing that the command `look` shows, on that host
        or on all of `looks_at`.
        """
        seen = {"loop": [*looks_at] or [host], "delegate_to": "{{ item }}", "changed_when": False}
        looks: list[dict[str, t.Any]] = [
            {"ansible.builtin.raw": look, "register": f"seen{number}", **seen} for number in (0, 1)
        ]
        runs = [
            {f"corral.virt.{module}": options, "register": f"run{number}", "check_mode": number in (0, 2)}
            for number in range(4)
        ]
        told = "{{ [seen0, seen1, run0, run1, run2, run3] }}"
        tasks = [looks[0], runs[0], looks[1], *runs[1:], {"ansible.builtin.set_fact": {"told": told}}]
        *shown, checked, done, check_again, again = self.tell(*tasks, hosts=host)[host]
        before, after = ([one["stdout"] for one in each["results"]] for each in shown)
        assert checked["changed"] and before == after
        assert done["steps"] == checked["steps"] and done.get("diff") == checked.get("diff")
        assert not any(one["changed"] or one["steps"] for one in (check_again, again)), (check_again, again)
        return [done, check_again, again]


@contextlib.contextmanager
def hypervisors(
    name: str, *roles: str, hosts: int = 1, image: bool = False, more: Sequence[str] = ()
) -> Iterator[Hypervisors]:
    """A lab for the length of a `with` block, made by these roles, or by all of ROLES; `more` goes to lab.py.

    Its hosts have the roles' packages from the start, and what the same roles made of such hosts before is a template:
    bare hosts are what test_story.py begins with.
    """
    roles = roles or ROLES
    lab = Hypervisors(name)
    if not lab.kept:
        lab_py: tuple[str | Path, ...] = (sys.executable, HERE / "lab.py")
        shape = ["--hosts", str(hosts), "--packages", ",".join(packages()), *more]
        template, subnet = _template(roles, shape)
        up: tuple[str | Path, ...] = (
            *lab_py,
            "up",
            "--name",
            name,
            *shape,
            "--subnet",
            subnet,
            *([] if image else ["--no-image"]),
        )
        lab.run(*lab_py, "down", "--name", name)
        output = lab.run(*up, "--template", template, timeout_s=900)
        lab.run(sys.executable, HERE / "demo.py", "config", "--name", name)
        if "begins with the template" not in output:
            _make(lab, roles, hosts)
            lab.run(*lab_py, "template", "--name", name, template)
            lab.run(*up)
    try:
        yield lab
    finally:
        if not lab.kept:
            lab.run(sys.executable, HERE / "lab.py", "down", "--name", name)


def _make(lab: Hypervisors, roles: Sequence[str], hosts: int) -> None:
    for number in range(1, hosts + 1):
        lab.on(f"hyper{number}", KEEP_CODE, given=KEPT_CODE.read_text())
    book = lab.folder / "hypervisors.json"
    # Roles ask for nothing of the hardware, which takes longest to learn; site.yml gathers all.
    facts = ["!all", "network"]
    book.write_text(
        json.dumps([{"hosts": "hyper", "gather_subset": facts, "roles": [f"corral.virt.{role}" for role in roles]}])
    )
    lab.run("ansible-playbook", book, timeout_s=900)


def _template(roles: Sequence[str], shape: Sequence[str]) -> tuple[str, str]:
    """The template of such hypervisors, SLOT=KEY, and its network's third number: each worker of a test run has its
    own.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw9")
    slot = hashlib.sha256("\0".join([*roles, "", *shape]).encode()).hexdigest()[:8]
    return f"{worker}-{slot}={_content()}", str(200 + int(worker.removeprefix("gw")))


@functools.cache
def _content() -> str:
    """Of all that hosts and the roles on them are made from."""
    folders = [ROOT / each for each in ("roles", "plugins", "meta", "tests/lab/corral_lab", "tests/tools/kept_code")]
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    texts = [path.read_bytes() for path in (Path(__file__), HERE / "demo.py", ROOT / "requirements-dev.txt")]
    texts.append(time.strftime("%Y-%m").encode())  # certificates grow old
    return hashlib.sha256(
        b"\0".join([*texts, *(str(path.relative_to(ROOT)).encode() + path.read_bytes() for path in files)])
    ).hexdigest()[:12]


def packages() -> list[str]:
    """What the roles install on a host of the lab, and what tests install there themselves."""
    role = ROOT / "roles/hypervisor"
    result = yaml.safe_load((role / "vars/main.yml").read_text())["__hypervisor_families"]["Debian"]
    facts = {"architecture": platform.machine()}
    named = [jinja2.Template(each).render(ansible_facts=facts) for each in (*result["packages"], *result["security"])]
    return sorted({*named, *result["seeds"], *WITNESSES})


@contextlib.contextmanager
def allowed_to_fault() -> Iterator[None]:
    """Post-copy needs what a host's administrator allows with this.

    All labs share this machine's kernel, so one at a time.
    """
    with Path("/run/lock/corral-lab-userfaultfd").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = USERFAULTFD.read_text()
        USERFAULTFD.write_text("1")
        try:
            yield
        finally:
            USERFAULTFD.write_text(before)


def guide(name: str, language: str = "yaml") -> list[t.Any]:
    """The YAML that a guide shows, in its order: plays, tasks, and mappings of variables."""
    text = (ROOT / f"docs/docsite/rst/guide_{name}.rst").read_text()
    blocks = [
        yaml.safe_load(block)
        for block in re.findall(rf"\.\. code-block:: {re.escape(language)}\n\n((?:    .*\n|\n)+)", text)
    ]
    return [item for block in blocks for item in (block if isinstance(block, list) else [block])]
