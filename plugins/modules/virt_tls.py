#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The TLS files of a hypervisor: read, decide, request, install."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_tls
short_description: The TLS certificates of a hypervisor
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Gives a hypervisor the certificates that libvirt (C(qemu+tls://), port 16514) and QEMU (migration, disks, consoles)
    need, and renews them in time.
  - Private keys are made on the host and never leave it. The authorities are kept on the controller, are made when
    there are none, and sign there.
  - libvirt and QEMU have an authority each, and each host an identity of its own for both. C(libvirt) is
    C(O=corral.virt,OU=libvirt,CN=NAME) and only root can read its key; C(qemu) is C(O=corral.virt,OU=qemu,CN=NAME) and
    the group QEMU runs in can read its key. A guest that breaks out of QEMU finds no key that opens another hypervisor,
    and none that libvirt's clients would take for a hypervisor's.
  - An identity has two certificates, one for servers and one for clients, each for that one (critical) purpose.
  - A CA whose end is near is replaced. The new one is trusted by every host that holds certificates before it signs,
    and the old one is trusted until none of its certificates is used, so that any two hosts can reach each other all
    the while. The same way leads from one CA for both, as the first version of this collection made it, to two. Each of
    the three steps (trust, sign, give up) needs one run of this module on all hosts; RV(rolling) says whether one is
    left.
  - The places libvirt and QEMU look at become links into a directory C(corral) that holds complete sets of CA
    certificates, CRL, certificates and key. One rename exchanges a set, so that after a power cut either the old or the
    new one is in use.
  - A daemon that serves TLS reads the new files at once, without a restart.
options:
  state:
    description:
      - V(present) gives the host its certificates. In check mode nothing is made, on the controller or on the host.
      - V(revoked) revokes all valid certificates of O(name), or of everybody who is not in O(hypervisors). It changes
        files below O(ca_dir) and reaches no host. Hosts refuse these certificates when this module has run on them with
        V(present), and close connections that clients with such certificates have open.
    type: str
    choices: [present, revoked]
    default: present
  name:
    description:
      - The common name of the certificates.
      - Default is the host's name in the inventory. C(controller) is the controller's.
    type: str
  names:
    description:
      - Every host name and IP address that clients and other hypervisors reach the host by. A certificate that lacks
        one of them, or has one more, is replaced.
      - Default is the host's name in the inventory and its C(ansible_host).
    type: list
    elements: str
  identities:
    description: The identities the host shall have.
    type: list
    elements: str
    choices: [libvirt, qemu]
    default: [libvirt, qemu]
  ca_dir:
    description:
      - Directory of the authorities on the controller, made with mode 0700 when it does not exist.
      - Whoever reads a C(ca-key.pem) below it is root on every hypervisor. Keep it out of version control, and keep a
        copy.
      - The environment variable E(CORRAL_VIRT_CA_DIR) of the controller sets the default.
    type: path
    default: ~/.config/corral/ca
  ca_passphrase:
    description:
      - Passphrase of the keys of the authorities. An unencrypted key in O(ca_dir) is encrypted with it.
      - The environment variable E(CORRAL_VIRT_CA_PASSPHRASE) of the controller sets the default.
    type: str
  ca_constraints:
    description:
      - Domains and networks to which certificates are restricted of CAs that are made from now on, as in RFC 5280,
        section 4.2.1.10.
      - Without a domain any name is permitted, without a network any address.
      - The name in the controller's own certificate need not be listed.
    type: list
    elements: str
    default: []
  new_authority:
    description:
      - Make new CAs now. Say it for one host of a play, or each host makes one.
      - Not with O(ca_key).
    type: bool
    default: false
  controller:
    description:
      - Also give the controller a certificate, as client of the hypervisors, in C(controller/) of O(ca_dir), so that
        C(qemu+tls://HOST/system?pkipath=DIR) works from there.
    type: bool
    default: false
  hypervisors:
    description:
      - With O(state=revoked), the names of all hypervisors. The certificates of those that were in the same inventory
        when this module last ran on them, and are neither listed nor any other host of it now, are revoked.
    type: list
    elements: str
  days:
    description: How long new certificates are valid, in days. At most 900, and never longer than the CA, which is made
      for 3650.
    type: int
    default: 365
  renew_before:
    description:
      - Renew a certificate when it is valid for fewer days than this. Less than O(days).
      - Each host adds some days of its own, at most as many again, so that not all renew on one day.
    type: int
    default: 30
  force:
    description: Issue new keys and certificates, whatever the state of those in place.
    type: bool
    default: false
  replace_authority:
    description:
      - Whether certificates of another authority may be replaced. Every client and hypervisor that has its certificate
        from the other one is shut out then, such as a second administrator's controller.
      - When V(false), a host with certificates of another authority is refused before anything is changed. Two
        controllers that share their hosts share the authority, see O(ca_dir) and O(ca_key).
    type: bool
    default: false
  pki_dir:
    description: Directory below which libvirt and QEMU look, on the host.
    type: path
    default: /etc/pki
  qemu_group:
    description:
      - The group that QEMU runs in.
      - Default is the first of C(qemu), C(libvirt-qemu) and C(kvm) that the host has.
    type: str
  daemon:
    description:
      - The daemon that serves TLS, and reads new files when it listens on port 16514.
      - Default is the one that has an administration socket.
    type: str
    choices: [libvirtd, virtproxyd]
  ca_certificate:
    description:
      - Certificate of libvirt's CA, as PEM text, instead of those in O(ca_dir). With several, all are trusted, and the
        one that O(ca_key) belongs to signs, or the first one.
      - Without O(ca_key), O(ca_dir) and O(controller) are not looked at. RV(requests) holds what that CA has to sign;
        give the result back as O(certificates).
    type: str
  ca_key:
    description:
      - Private key of the CA of O(ca_certificate), as PEM text, such as from a vault. It is not written to any disk,
        and not sent to the host. What it signs, and the controller's certificate, are kept in O(ca_dir).
      - Needs O(qemu_ca_certificate) and O(qemu_ca_key), too, where O(identities) has V(qemu).
    type: str
  ca_crl:
    description:
      - Certificates that the CA of O(ca_certificate) has revoked, as PEM text. Not with O(ca_key), which signs the list
        itself.
      - One that is not valid any more is refused; libvirt would refuse everybody.
    type: str
  qemu_ca_certificate:
    description: Certificate of QEMU's CA, as O(ca_certificate) is that of libvirt's.
    type: str
  qemu_ca_key:
    description: Private key of the CA of O(qemu_ca_certificate), as PEM text.
    type: str
  qemu_ca_crl:
    description: Certificates that the CA of O(qemu_ca_certificate) has revoked, as PEM text. QEMU looks there for its
      clients only.
    type: str
  retired_ca_certificates:
    description: Certificates, as PEM text, of CAs that were given before. A host that still trusts one of them trusts
      it no longer.
    type: str
  revoked:
    description: Subjects of certificates that are revoked and still valid, by serial number (hexadecimal). Their
      connections are closed.
    type: dict
  certificates:
    description:
      - Certificates signed by the CAs of O(ca_certificate) and O(qemu_ca_certificate), as PEM text, by identity. One
        for servers and one for clients, in one text.
    type: dict
requirements:
  - cryptography >= 3.1 on the host
  - cryptography >= 38.0.4 on the controller
extends_documentation_fragment:
  - corral.virt.connection.attributes
"""

EXAMPLES = r"""
- name: Give every hypervisor its certificates
  corral.virt.virt_tls:
    names:
      - "{{ inventory_hostname }}"
      - "{{ ansible_facts.default_ipv4.address }}"
    ca_dir: ~/cloud/ca

- name: Sign with authorities that several controllers share
  corral.virt.virt_tls:
    ca_certificate: "{{ lookup('ansible.builtin.file', 'files/libvirt-ca.pem') }}"
    ca_key: "{{ vault_ca_key }}"
    qemu_ca_certificate: "{{ lookup('ansible.builtin.file', 'files/qemu-ca.pem') }}"
    qemu_ca_key: "{{ vault_qemu_ca_key }}"
    controller: true

- name: Refuse what was ever issued to a hypervisor that is in wrong hands
  corral.virt.virt_tls:
    state: revoked
    name: hyper3
  run_once: true

- name: Ask for what a company's own CAs have to sign
  corral.virt.virt_tls:
    ca_certificate: "{{ lookup('ansible.builtin.file', 'company-ca.pem') }}"
    qemu_ca_certificate: "{{ lookup('ansible.builtin.file', 'company-qemu-ca.pem') }}"
  register: tls
"""

RETURN = r"""
certificates:
  description: The certificates in place, by identity and purpose (C(server), C(client)). In check mode those that stand
    now.
  returned: success
  type: dict
  contains:
    subject:
      description: Distinguished name, as C(tls_allowed_dn_list) compares it.
      type: str
      returned: success
      sample: O=corral.virt,OU=libvirt,CN=hyper1
    names:
      description: Names and addresses it is valid for.
      type: list
      elements: str
      returned: success
    not_after:
      description: End of its validity, UTC.
      type: str
      returned: success
      sample: "2027-11-21T09:30:00Z"
    serial:
      description: Serial number, hexadecimal.
      type: str
      returned: success
    fingerprint:
      description: SHA-256 of the certificate, hexadecimal.
      type: str
      returned: success
renewed:
  description: Identities that got, or in check mode would get, a new certificate.
  returned: success
  type: list
  elements: str
  sample: [libvirt]
steps:
  description: What was done, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: ["issue libvirt certificate (names)"]
trusts:
  description: The CAs that the host trusts, SHA-256 of their certificates, hexadecimal, by identity.
  returned: success
  type: dict
rolling:
  description: By authority, where a CA is being replaced, who has yet to trust the new one; if all do, who has
    certificates of the old one.
  returned: success, unless other CAs than the controller's sign
  type: dict
revoked:
  description: Whose certificates were revoked, or would be in check mode.
  returned: with O(state=revoked)
  type: list
  elements: str
requests:
  description: What the CAs have to sign, as PEM text, by identity. Each request is for two certificates. None in check
    mode.
  returned: with O(ca_certificate) and without O(ca_key)
  type: dict
"""

import datetime
import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _changes
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._files import daemon
from ansible_collections.corral.virt.plugins.module_utils._files import tls as files
from ansible_collections.corral.virt.plugins.module_utils._front.module import Module, failures
from ansible_collections.corral.virt.plugins.module_utils._front.tls import OPTIONS, trusts, wanted
from ansible_collections.corral.virt.plugins.module_utils._model.tls import FoundTls, Identity, TlsSpec
from ansible_collections.corral.virt.plugins.module_utils._plan import tls as plans
from ansible_collections.corral.virt.plugins.module_utils._plan.step import Step
from ansible_collections.corral.virt.plugins.module_utils._plan.tls import (
    Install,
    Load,
    Remember,
    Request,
    SetMode,
    SetTrust,
)
from ansible_collections.corral.virt.plugins.module_utils._run import Gate


def now() -> datetime.datetime:
    """What this host's clock says."""
    return datetime.datetime.now(datetime.timezone.utc)


class _Host:
    """The certificates of one host: what there is, and how each step is done."""

    def __init__(self, params: t.Mapping[str, t.Any], clock: t.Callable[[], datetime.datetime]) -> None:
        self.root, self.clock = params["pki_dir"], clock
        self.goals = wanted(params, trusts(params), group=files.group)

    def found(self) -> dict[str, FoundTls]:
        """By identity."""
        return {name: self._read(goal) for name, goal in self.goals.items()}

    def _read(self, goal: TlsSpec) -> FoundTls:
        with files.explained(f"read the {goal.identity.name} certificates"):
            return files.read(goal.identity, self.root, trust=goal.trust)

    def request(self, identity: Identity) -> str:
        """A new key, and the request for its certificates (PEM)."""
        goal = self.goals[identity.name]
        return files.request(identity, self.root, subject=goal.subject, names=goal.names)

    def do(self, step: Step) -> str | None:
        """Hand a step to the room that knows how; a request comes back as PEM."""
        with files.explained(str(step)):
            return t.cast("str | None", _DOERS[type(step)](self, step))


_DOERS: dict[type[Step], t.Callable[[_Host, t.Any], object]] = {
    Request: lambda host, step: host.request(step.identity),
    Remember: lambda host, _step: daemon.remember(host.root, host.goals["libvirt"].trust),
    Install: lambda host, step: files.install(step.wanted, host.root, certificate=step.certificate, now=host.clock()),
    SetTrust: lambda host, step: files.install(step.wanted, host.root),
    SetMode: lambda host, step: files.set_mode(
        f"{host.root}/{step.place.path}", owner=step.owner, group_name=step.group, mode=step.mode
    ),
    Load: lambda host, step: daemon.load(step.daemon, host.root, host.goals["libvirt"].trust),
}


def run(params: t.Mapping[str, t.Any], gate: Gate, clock: t.Callable[[], datetime.datetime] = now) -> dict[str, t.Any]:
    """Fetch, plan, pass through the gate, report."""
    if params["state"] == "revoked":
        raise BadInput(["state: revoked is for the controller; a host has nothing to revoke"])
    host = _Host(params, clock)
    states = host.found()
    plan = plans.plan(host.goals, states, params["certificates"] or {}, now=clock())
    steps = [*plan.steps, *_reading(params, host, states, plan.steps, gate)]
    results = gate.run(steps, host.do)
    states, told = host.found(), [step for step in steps if step.changes]
    return {
        "changed": bool(told),
        "diff": _changes.diff(plan.changes),
        "steps": [str(step) for step in told],
        "renewed": [step.identity.name for step in steps if isinstance(step, Request)],
        "requests": {step.identity.name: csr for step, csr in zip(steps, results) if isinstance(step, Request)},
        "certificates": {
            name: {purpose: one.result() for purpose, one in state.certificates.items()}
            for name, state in states.items()
            if state.certificates
        },
        "trusts": {name: sorted(state.trusts) for name, state in states.items()},
        "held": {name: list(state.held) for name, state in states.items()},
        "crl": {
            name: state.crl for name, state in states.items() if {*state.stands} - {*host.goals[name].trust.refuses}
        },
    }


def _reading(
    params: t.Mapping[str, t.Any], host: _Host, states: t.Mapping[str, FoundTls], steps: t.Sequence[Step], gate: Gate
) -> t.Sequence[Step]:
    """Steps that let the daemon read what is in place, unless certificates come with another call."""
    comes = any(isinstance(step, Request) for step in steps)
    if host.root != daemon.SYSTEM or "libvirt" not in host.goals or gate.perform(lambda: comes, otherwise=False):
        return ()
    serving = daemon.serving(params["daemon"])
    is_loaded = serving is None or daemon.is_loaded(host.root)
    return plans.reading(steps, serving, has_files=bool(states["libvirt"].files), is_loaded=is_loaded)


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module):
        module.exit_json(**run(module.params, Gate(check_mode=module.check_mode)))


if __name__ == "__main__":
    main()
