# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of revoked certificates, CAs and certificates on the hosts of a CA directory, read before any is written to.

The first host's action queries all hosts, the others read its note. A directory that was restored from a backup has
forgotten later revocations; the hosts have not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import shlex
import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.corral.virt.plugins.module_utils._tls.files_trust import each
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import IDENTITIES
from ansible_collections.corral.virt.plugins.plugin_utils._authority.authority_records import TakeOver
from ansible_collections.corral.virt.plugins.plugin_utils._commands.other_hosts import Noted, OtherHosts
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable
from ansible_collections.corral.virt.plugins.plugin_utils._report.wording import enumerated

_DEFAULTS = ("virt", "virt_tls")
_FILES = [place.path for one in IDENTITIES.values() for place in one.places if place.kind != "key"]
# Nothing where a file is missing; an error where nobody can tell.
_READ = """cd {root} 2>/dev/null || {{ test ! -e {root} && exit 0; echo cannot open {root}; exit 1; }}
for each in {folders}; do test ! -d "$each" || test -x "$each" || {{ echo "cannot open $each"; exit 1; }}; done
for each in {files}; do test ! -e "$each" || cat "$each" || exit 1; done"""

Variables = dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Survey:
    """The answers of the hosts; `asked` is True in the process that queried them, which reports the findings."""

    lists: t.Mapping[str, t.Sequence[str]]  # PEM -> the hosts that have it
    certificates: t.Mapping[str, t.Sequence[str]] = dataclasses.field(default_factory=dict)  # by host, PEM
    silent: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # why, by host
    asked: bool = True


class HeldLists:
    """Reads what the hosts of one CA directory hold, once in a run, also on hosts that `--limit` excludes."""

    def __init__(self, action: ActionBase, variables: Variables, params: Variables) -> None:
        self._others = OtherHosts(action, variables, defaults=_DEFAULTS)
        here = str(variables["inventory_hostname"])
        self._known = [*variables.get("groups", {}).get("all", [])]
        self._wanted = {*(params["hypervisors"] or ()), *(variables.get("ansible_play_hosts_all") or ()), here}
        self._pki_dir = params["pki_dir"]
        self._note = _note_of(params)

    @contextlib.contextmanager
    def survey(self, recorded: t.Collection[str]) -> t.Iterator[Survey]:
        """The survey of all hosts; inside, other actions of the run wait, so that findings are recorded first.

        `recorded` are the hosts that the directory has seen.
        """
        with Noted("corral-held-lists", self._note) as note:
            lists, asked = note.setdefault("lists", []), note.setdefault("asked", [])
            wanted = {*self._wanted, *recorded} - {*asked}
            answers = self._others.ask([host for host in self._known if host in wanted], self._read)
            asked += [*answers]
            texts = {host: _lines(answer) for host, answer in answers.items() if not answer.get("failed")}
            for host, text in texts.items():
                lists += [[one, host] for one in each(text, "X509 CRL")]
            by_text: dict[str, list[str]] = {}
            for one, host in lists:
                by_text.setdefault(one, []).append(host)
            note["lists"] = [[one, host] for one, hosts in by_text.items() for host in hosts]
            yield Survey(
                by_text,
                {host: each(text) for host, text in texts.items()},
                {host: _reason(answer) for host, answer in answers.items() if answer.get("failed")},
                asked=bool(answers),
            )

    def _read(self, host: str) -> Variables:
        root = self._others.arguments(host, ["pki_dir"]).get("pki_dir") or self._pki_dir
        folders = sorted({path.rpartition("/")[0] for path in _FILES})
        return self._others.connected(host).read(
            _READ.format(root=shlex.quote(str(root)), folders=" ".join(folders), files=" ".join(_FILES))
        )


def planned_revocations(params: Variables) -> Noted:
    """The run's note of revocations that check mode has planned, by serial."""
    return Noted("corral-planned-revocations", _note_of(params))


def _note_of(params: Variables) -> str:
    """The name of a run's notes on one authority."""
    of = f"{params['ca_dir']} {params['ca_certificate'] or ''} {params['qemu_ca_certificate'] or ''}"
    return hashlib.sha256(of.encode()).hexdigest()


def _lines(answer: Variables) -> str:
    """Output of a host with LF line ends: the terminals of some become methods write CRLF."""
    return str(answer.get("stdout") or "").replace("\r\n", "\n")


def _reason(answer: Variables) -> str:
    return str(printable(" ".join(str(answer.get("msg") or "it did not answer").split())))


def forgotten(place: str, steps: t.Sequence[TakeOver]) -> str:
    """The warning about revocations that were taken over from hosts."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for step in steps:
        groups.setdefault((step.holder, step.hosts), []).append(step.serial)
    held = [
        f"those of {holder or 'a holder that is unknown here'} ({', '.join(serials)}) on {enumerated(hosts)}"
        for (holder, hosts), serials in sorted(groups.items())
    ]
    return (
        f"{place} had forgotten revocations that hypervisors hold: {'; '.join(held)}. They are taken over. The "
        "directory was restored from an older backup, or is a copy, and another controller has revoked them since: "
        "restore the newest backup, or share the directory. Certificates that were issued since then are unknown here "
        "until a run reaches their hosts; those that no host has any more cannot be revoked: if there may be such, "
        "replace the CAs (ansible-playbook corral.virt.rotate_certificates -e authority=true)"
    )


def unread(place: str, silent: t.Mapping[str, str]) -> str:
    """The warning about hosts that did not answer."""
    hosts = [f"{host} ({reason})" for host, reason in sorted(silent.items())]
    return (
        f"cannot read the lists of revoked certificates of {enumerated(hosts)}: they may have revocations that {place} "
        "lacks, if it was restored from a backup or copied. Run again when these hosts can be reached"
    )


def strange(place: str, found: t.Mapping[str, t.Sequence[str]]) -> str:
    """The warning about CAs (in words) that the directory lacks, with the hosts that trust them."""
    cas = [f"{called} on {enumerated(sorted(hosts))}" for called, hosts in sorted(found.items())]
    return (
        f"hypervisors trust CAs that {place} does not have: {'; '.join(cas)}. Hosts whose "
        "certificates they have signed cannot reach those of this directory. If it was restored from an older backup, "
        "restore the newest one"
    )
