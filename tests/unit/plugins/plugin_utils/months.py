"""A cloud whose clock a test turns: the controller's half and the hosts' half of `virt_tls`, in directories, without
Ansible between.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import subprocess
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._tls.files_trust import each
from ansible_collections.corral.virt.plugins.module_utils._tls.run_tls import converge
from ansible_collections.corral.virt.plugins.module_utils._tls.run_tls_arguments import OPTIONS
from ansible_collections.corral.virt.plugins.plugin_utils._authority.certifier import Certifier
from ansible_collections.corral.virt.plugins.plugin_utils._authority.host_trust import Survey

START = datetime.datetime(2026, 11, 1, 12, tzinfo=datetime.UTC)
MONTH = datetime.timedelta(days=30)
Told = dict[str, t.Any]
# Where a server and a client of each kind find their files.
_FILES = {
    "libvirt": ("CA/cacert.pem", "CA/cacrl.pem", "libvirt/servercert.pem", "libvirt/clientcert.pem"),
    "qemu": ("qemu/ca-cert.pem", "qemu/ca-crl.pem", "qemu/server-cert.pem", "qemu/client-cert.pem"),
}

_PUBLIC = [path for paths in _FILES.values() for path in paths]


class Cloud:
    """Hosts `h1`, `h2`, ... below `place`, and the controller's directory `ca`."""

    def __init__(self, place: Path, *, hosts: int = 3) -> None:
        self.place = place
        self.now = START
        # a hostile host's is another one
        self.answer: t.Callable[[t.Callable[[Told], Told]], t.Callable[[Told], Told]] = lambda ask: ask
        self.check: t.Callable[[], None] = lambda: None
        self.host_ahead = datetime.timedelta()
        self.hosts = [f"h{number}" for number in range(1, hosts + 1)]
        self.inventory = "hosts.yml"
        self.asks = False  # whether a visit asks all hosts first, as the action does
        self.silent: dict[str, str] = {}  # who does not answer then, and why
        self.warnings: list[str] = []  # of the last visit
        self.planned: Told = {}  # what a run with --check notes

    def visit(self, host: str, *, check_mode: bool = False, **output: t.Any) -> Told:
        """What the action says of one host."""
        gate = Gate(check_mode=check_mode)

        def ask(params: Told) -> Told:
            given = {**_defaults(), **params}
            return converge(given, gate, lambda: self.now + self.host_ahead)

        address = f"10.0.0.{host[1:]}"
        own = {"name": host, "names": [host, address], "pki_dir": str(self.place / host), "qemu_group": "root"}
        params = {**_defaults(), **own, "ca_dir": str(self.place / "ca"), "controller": host == self.hosts[0], **output}
        self.warnings = []
        return Certifier(
            params,
            gate,
            self.answer(ask),
            self.inventory,
            clock=lambda: self.now,
            held=self.survey if self.asks else None,
            warn=self.warnings.append,
            planned=lambda: contextlib.nullcontext(self.planned),
        ).certify(check=self.check)

    @contextlib.contextmanager
    def survey(self, _recorded: t.Collection[str]) -> t.Iterator[Survey]:
        """What all hosts hold."""
        lists: dict[str, list[str]] = {}
        certificates: dict[str, list[str]] = {}
        for host in self.hosts:
            if host not in self.silent:
                texts = [path.read_text() for path in map(functools.partial(self.path, host), _PUBLIC) if path.exists()]
                certificates[host] = each("".join(texts))
                for one in each("".join(texts), "X509 CRL"):
                    lists.setdefault(one, []).append(host)
        yield Survey(lists, certificates, self.silent)

    def play(self, *hosts: str, **output: t.Any) -> dict[str, Told]:
        """As role pki does: every host, and once more for each step of a roll-over."""
        once = output.pop("new_authority", False)
        result = {
            host: self.visit(host, new_authority=once and host == self.hosts[0], **output)
            for host in hosts or self.hosts
        }
        again = {key: value for key, value in output.items() if key != "force"}
        for _step in range(2):
            if any(one["rolling"] for one in result.values()):
                assert not self.refusals(*hosts)
                later = {host: self.visit(host, **again) for host in hosts or self.hosts}
                result = {
                    host: {**later[host], "changed": result[host]["changed"] or later[host]["changed"]}
                    for host in later
                }
        return result

    def revoke(
        self,
        hosts: t.Sequence[str] = (),
        inventories: t.Collection[str] = ("hosts.yml",),
        *,
        check_mode: bool = False,
        limited: bool = False,
        **output: t.Any,
    ) -> Told:
        """`state: revoked`, which asks no host."""
        params = {**_defaults(), "state": "revoked", "ca_dir": str(self.place / "ca"), **output}
        return Certifier(
            params,
            Gate(check_mode=check_mode),
            lambda _params: {},
            "",
            inventories,
            hosts,
            lambda: self.now,
            planned=lambda: contextlib.nullcontext(self.planned),
            limited=limited,
        ).revoke()

    def refusals(self, *hosts: str) -> list[str]:
        """Every certificate of a host, or of the controller, that openssl would refuse now with the files of another
        one.
        """
        found, everybody = [], hosts or tuple(self.hosts)
        for who in [*everybody, "controller"]:
            others = [host for host in everybody if host != who]
            for kind in _FILES if who != "controller" else ["libvirt"]:
                server, client = _FILES[kind][2:]
                clients = [self.path(host, client) for host in others if who != "controller"]
                if kind == "libvirt" and who != "controller":
                    clients.append(self.place / "ca/controller/clientcert.pem")
                found.append(self.refused(who, kind, "server", *(self.path(host, server) for host in others)))
                found.append(self.refused(who, kind, "client", *clients))
        return [f"{self.now:%Y-%m-%d} {what}" for what in found if what]

    def path(self, host: str, name: str) -> Path:
        """A file below /etc/pki of a host."""
        return self.place / host / name

    def refused(self, who: str, kind: str, purpose: str, *certificates: Path) -> str:
        """What openssl says to certificates with the files of somebody: empty when all are taken."""
        if not certificates:
            return ""
        ca, crl = (self.place / who / name for name in _FILES[kind][:2])
        if who == "controller":
            ca, crl = (self.place / "ca/controller" / name for name in ("cacert.pem", "cacrl.pem"))
        words = [
            "openssl",
            "verify",
            "-CAfile",
            str(ca),
            *(["-CRLfile", str(crl), "-crl_check"] if crl.exists() else []),
        ]
        words += ["-attime", str(int(self.now.timestamp())), "-purpose", f"ssl{purpose}", *map(str, certificates)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else f"{who} refuses: {done.stderr.strip() or done.stdout.strip()}"


def _defaults() -> Told:
    return {name: option.get("default") for name, option in OPTIONS.items()}
