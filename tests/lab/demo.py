"""The whole story on two bare hosts made for it: see README.md.

`demo.py up` (again: on the same hosts); `lab.py down --name demo` removes them.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import secrets
import shlex
import subprocess
import sys
import time
import typing as t

from corral_lab.places import STATE
from counter import Counter, Seen

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAB = [sys.executable, str(ROOT / "tests/lab/lab.py")]
GUEST = "web1"
CONSOLE_PORT = 8443


class Failed(Exception):
    """A stage did not do what it should; its own output says why."""

    more = "`make {demo}` goes on from here, `make {down}` removes everything."


class Lost(Failed):
    """The demo cannot go on: what it needs is gone."""

    more = "`make {down}` removes what is left; then `make {demo}` begins anew."


class Demo:
    """The stages, each timed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = ROOT / "build/lab" / name
        self.seconds: dict[str, float] = {}
        self.address = self.login = ""  # of the web console
        self.environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "ANSIBLE_FORCE_COLOR": str(sys.stdout.isatty()),
        }

    def run(self, command: t.Sequence[str], *, quiet: bool = False) -> str:
        """Run a command, shown as a user would type it; its output when `quiet`."""
        if not quiet:
            print(f"\n$ {shlex.join(command)}", flush=True)
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, text=True, stdout=subprocess.PIPE if quiet else None, check=False
        )
        if done.returncode:
            raise Failed(f"`{shlex.join(command)}` ended with {done.returncode}")
        return done.stdout or ""

    def targets(self, text: str) -> str:
        """A sentence with the targets of this demo."""
        name = "" if self.name == "demo" else f" DEMO={self.name}"
        return text.format(demo=f"demo{name}", down=f"demo-down{name}")

    def stage(self, title: str, body: t.Callable[[], object]) -> t.Any:
        """A stage under its title, timed."""
        print(f"\n=== {title}", flush=True)
        start = time.monotonic()
        try:
            return body()
        finally:
            self.seconds[title] = time.monotonic() - start

    def hosts_up(self) -> None:
        """Bare hosts, and a configuration of Ansible for them."""
        self.run([*LAB, "up", "--name", self.name, "--hosts", "2", "--image-later", "--kvm"])
        self.configure()
        self.refuse_lost()

    def refuse_lost(self) -> None:
        """Hosts trust one authority for ever, and its key was in this checkout."""
        ours = [path.read_text().strip() for path in self.folder.glob("ca/qemu/*/ca-cert.pem")]
        trusted = {path: path.read_text() for path in STATE.glob(f"{self.name}/hyper*/root/etc/pki/qemu/ca-cert.pem")}
        lost = sorted(path.parts[-6] for path, text in trusted.items() if not any(one in text for one in ours))
        if lost:
            raise Lost(
                f"the demo's hosts ({', '.join(lost)}) trust a certificate authority whose keys were in "
                f"{self.folder / 'ca'}, and are not there any more"
            )

    def configure(self) -> None:
        """An ansible.cfg that knows the lab's hosts and the demo's guests, from any folder."""
        config = (ROOT / "ansible.cfg").read_text()
        for option in (
            "collections_path",
            "library",
            "action_plugins",
            "inventory_plugins",
            "filter_plugins",
            "roles_path",
        ):
            config = "\n".join(
                f"{option} = {ROOT / line.partition('=')[2].strip()}" if line.startswith(f"{option} =") else line
                for line in config.splitlines()
            )
        inventory = f"inventory = {self.folder / 'inventory'},{ROOT / 'tests/lab/demo'}"
        config = "\n".join(inventory if line.startswith("inventory =") else line for line in config.splitlines())
        (self.folder / "ansible.cfg").write_text(config + "\n")

    def facts(self) -> dict[str, t.Any]:
        """The guest as the inventory has it."""
        return t.cast("dict[str, t.Any]", json.loads(self.run(["ansible-inventory", "--host", GUEST], quiet=True)))

    def migrate(self) -> Seen:
        """To the other hypervisor, while a session in the guest counts."""
        facts = self.facts()
        source = facts["virt_hypervisor"]
        dest = "hyper2" if source == "hyper1" else "hyper1"
        ssh = ["ssh", "-i", facts["ansible_ssh_private_key_file"], *shlex.split(facts["ansible_ssh_common_args"])]
        with Counter([*ssh, "--", f"{facts['ansible_user']}@{facts['ansible_host']}"]) as counter:
            self.run(["ansible-playbook", "corral.virt.migrate", "-e", f"guest={GUEST}", "-e", f"to={dest}"])
        seen = counter.seen()
        print(f"\nA session in {GUEST} counted to {seen.count} meanwhile; longest gap {seen.longest_gap_s:.2f} s.")
        if not seen.in_order:
            raise Failed("the session in the guest lost numbers or ended")
        return seen

    def up(self) -> None:
        """The story."""
        self.stage("Two bare hosts", self.hosts_up)
        self.stage("Bare hosts become hypervisors, a guest runs", lambda: self.run(["ansible-playbook", "site.yml"]))
        self.stage("What runs where", lambda: self.run(["ansible-inventory", "--graph"]))
        self.stage("First contact", lambda: self.run(["ansible", GUEST, "-m", "ping"]))
        self.stage("Live migration over TLS, without shared storage", self.migrate)
        self.stage("Query", lambda: self.run(["ansible-playbook", "corral.virt.query"]))
        self.stage("The web console", self.console)

    def console(self) -> None:
        """On the first host, with a login for this demo alone."""
        settings = self.folder / "console.json"
        known = json.loads(settings.read_text() or "{}") if settings.exists() else {}
        self.login = known["console_users"][0]["password"] if known else secrets.token_urlsafe(12)
        host = json.loads(self.run(["ansible-inventory", "--host", "hyper1"], quiet=True))["ansible_host"]
        self.address = f"https://{host}:{CONSOLE_PORT}/"
        rule = f"tcp dport {CONSOLE_PORT} accept"
        opened = f"nft list chain inet filter input | grep -q '{rule}' || nft add rule inet filter input {rule}"
        self.run(["ansible", "hyper1", "-b", "-m", "ansible.builtin.shell", "-a", opened], quiet=True)
        user = {"name": "admin", "password": self.login, "groups": ["admins"]}
        settings.touch(mode=0o600)
        given = {
            "console_host": "hyper1",
            "console_names": [host],
            "console_users": [user],
            "console_inventory": ["inventory/hosts.yml"],
            "console_ssh_key": str(self.folder / "id_ed25519"),
        }
        settings.write_text(json.dumps(given))
        self.run(["ansible-playbook", "corral.virt.console_server", "-e", f"@{settings}"])

    def table(self) -> None:
        """Seconds per stage."""
        width = max(len(title) for title in self.seconds)
        print(f"\n{'Stage':{width}}  Seconds")
        for title, seconds in self.seconds.items():
            print(f"{title:{width}}  {seconds:7.1f}")
        print(f"{'Together':{width}}  {sum(self.seconds.values()):7.1f}")

    def next_steps(self) -> None:
        """What to try, word for word."""
        print(
            "\n"
            f"The web console is at {self.address} (user admin, password {self.login}). Drag {GUEST} onto the other host.\n"
            "Your browser does not know the demo's certificate.\n"
            "\n"
            "The hosts stay up. Go on with:\n"
            "\n"
            "  . .venv/bin/activate\n"
            f"  export ANSIBLE_CONFIG={self.folder / 'ansible.cfg'}\n"
            "  ansible-inventory --graph\n"
            "  ansible-playbook corral.virt.host_info\n"
            f"  ansible {GUEST} -m command -a uptime\n"
            "  ansible-playbook corral.virt.create -e guest=web2 -e vcpus=2 -e memory=512MiB -e image=debian-12.qcow2\n"
            "  ansible web2 -m ping\n"
            "\n"
            f"{self.targets('`make {down}` removes everything.')}"
        )


def main() -> int:
    """Exit code 0 when everything was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["up", "config"])
    parser.add_argument("--name", default="demo", help="name of the lab (default: %(default)s)")
    arguments = parser.parse_args()
    demo = Demo(arguments.name)
    try:
        if arguments.command == "config":
            demo.configure()
            return 0
        demo.up()
        demo.table()
        demo.next_steps()
    except KeyboardInterrupt:
        print(f"\nStopped. {demo.targets(Failed.more)}", file=sys.stderr)
        return 130
    except (Failed, RuntimeError) as error:
        more = error.more if isinstance(error, Failed) else Failed.more
        print(f"\nFailed: {error}. {demo.targets(more)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
