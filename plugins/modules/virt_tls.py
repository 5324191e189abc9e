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
  - Private keys are made on the host and never leave it. The CA is kept on the controller, is made when there is none,
    and signs there.
  - Each host has two identities with keys and names of their own. C(libvirt) is C(O=corral.virt,OU=libvirt,CN=NAME) and
    only root can read its key; C(qemu) is C(O=corral.virt,OU=qemu,CN=NAME) and the group QEMU runs in can read its key.
    When C(tls_allowed_dn_list) of the libvirt daemon admits only C(OU=libvirt), as the role P(corral.virt.pki#role)
    arranges, a guest that breaks out of QEMU finds no key that opens another hypervisor.
  - The places libvirt and QEMU look at become links into a directory C(corral) that holds complete sets of CA
    certificate, certificate and key. One rename exchanges a set, so that after a power cut either the old or the new
    one is in use.
  - A renewed certificate is read by a running daemon after C(virt-admin server-update-tls); nothing needs a restart.
options:
  name:
    description:
      - The common name of the certificates.
      - Default is the host's name in the inventory.
    type: str
  names:
    description:
      - Every host name and IP address that clients and other hypervisors reach the host by. A certificate that lacks one
        of them, or has one more, is replaced.
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
      - Directory of the CA on the controller, made with mode 0700 when it does not exist.
      - Whoever reads C(ca-key.pem) in it is root on every hypervisor. Keep it out of version control, and keep a copy.
      - The environment variable E(CORRAL_VIRT_CA_DIR) of the controller sets the default.
    type: path
    default: ~/.config/corral/ca
  controller:
    description:
      - Also give the controller a certificate, as client of the hypervisors, in C(controller/) of O(ca_dir), so that
        C(qemu+tls://HOST/system?pkipath=DIR) works from there.
    type: bool
    default: false
  days:
    description: How long new certificates are valid, in days; never longer than the CA.
    type: int
    default: 365
  renew_before:
    description: Renew a certificate when it is valid for fewer days than this.
    type: int
    default: 30
  force:
    description: Issue new keys and certificates, whatever the state of those in place.
    type: bool
    default: false
  replace_authority:
    description:
      - Whether certificates of another authority may be replaced. Every client and hypervisor that has its certificate from the other one
        is shut out then, such as a second administrator's controller.
      - When V(false), a host with certificates of another authority is refused before anything is changed. Two controllers that
        share their hosts share the authority, see O(ca_dir) and O(ca_key).
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
  ca_certificate:
    description:
      - Certificate of the CA, as PEM text, instead of the one in O(ca_dir).
      - Without O(ca_key), O(ca_dir) and O(controller) are not looked at. RV(requests) holds what that CA has to sign; give the result back
        as O(certificates).
    type: str
  ca_key:
    description:
      - Private key of the CA of O(ca_certificate), as PEM text, such as from a vault. It is not written to any disk, and not sent to
        the host. What it signs, and the controller's certificate, are kept in O(ca_dir).
    type: str
  certificates:
    description:
      - Certificates signed by the CA of O(ca_certificate), as PEM text, by identity.
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
  register: tls

- name: Let the running daemon read them
  ansible.builtin.command: virt-admin server-update-tls libvirtd
  when: "'libvirt' in tls.renewed"
  changed_when: true

- name: Sign with an authority that several controllers share
  corral.virt.virt_tls:
    ca_certificate: "{{ lookup('ansible.builtin.file', 'files/ca-cert.pem') }}"
    ca_key: "{{ vault_ca_key }}"
    controller: true

- name: Ask for what a company's own CA has to sign
  corral.virt.virt_tls:
    ca_certificate: "{{ lookup('ansible.builtin.file', 'company-ca.pem') }}"
  register: tls
"""

RETURN = r"""
certificates:
  description: The certificates in place, by identity. In check mode those that stand now.
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
requests:
  description: What the CA of O(ca_certificate) has to sign, as PEM text, by identity.
  returned: when O(ca_certificate) is given
  type: dict
"""

import datetime
import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _changes
from ansible_collections.corral.virt.plugins.module_utils._files import tls as files
from ansible_collections.corral.virt.plugins.module_utils._front.module import Module, failures
from ansible_collections.corral.virt.plugins.module_utils._front.tls import OPTIONS, wanted
from ansible_collections.corral.virt.plugins.module_utils._model.tls import Found, Wanted
from ansible_collections.corral.virt.plugins.module_utils._plan.tls import Install, Request, SetMode, decide, refuse_foreign
from ansible_collections.corral.virt.plugins.module_utils._run import Gate


def run(params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Fetch, plan, pass through the gate, report."""
    root, authority, signed = params["pki_dir"], params["ca_certificate"] or None, params["certificates"] or {}
    goals = {goal.identity.name: goal for goal in wanted(params, group=files.group)}

    def found(goal: Wanted) -> Found:
        with files.said(f"read the {goal.identity.name} certificate"):
            return files.read(goal.identity, root, authority=authority)

    def do(step: Request | Install | SetMode) -> str | None:
        with files.said(str(step)):
            if isinstance(step, Request):
                return files.request(step.identity, root, subject=goals[step.identity.name].subject)
            if isinstance(step, Install):
                files.install(step.wanted, root, certificate=step.certificate, authority=authority or "")
            else:
                files.set_mode(f"{root}/{step.place.path}", owner=step.owner, group_name=step.group, mode=step.mode)
            return None

    steps: list[t.Any] = [Install(goals[name], text) for name, text in signed.items() if name in goals]
    states = [(goal, found(goal)) for goal in goals.values()]
    refuse_foreign(states, ours=files.authority_of(authority) if authority else None)
    changes = []
    if not steps:
        plans = [decide(goal, state, now=datetime.datetime.now(datetime.timezone.utc)) for goal, state in states]
        steps = [step for plan in plans for step in plan.steps]
        changes = [change for plan in plans for change in plan.changes]
    results = gate.run(steps, do)
    certificates = {name: found(goal).certificate for name, goal in goals.items()}
    return {
        "changed": bool(steps),
        "diff": _changes.diff(changes),
        "steps": [str(step) for step in steps],
        "renewed": [step.identity.name for step in steps if isinstance(step, Request)],
        "requests": {step.identity.name: csr for step, csr in zip(steps, results) if isinstance(step, Request)},
        "certificates": {name: certificate.result() for name, certificate in certificates.items() if certificate},
    }


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module):
        module.exit_json(**run(module.params, Gate(check_mode=module.check_mode)))


if __name__ == "__main__":
    main()
