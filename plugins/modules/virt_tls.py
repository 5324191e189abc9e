#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The TLS files of a hypervisor: the front of `_tls/run_tls.py`."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_tls
short_description: Manage the TLS certificates of a hypervisor
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Issues the certificates that libvirt (C(qemu+tls://), port 16514) and QEMU (migration, disks, consoles) need on a
    hypervisor, and renews them in time.
  - Private keys are created on the host and never leave it. The CAs are on the controller, which creates them if they
    do not exist and signs there.
  - libvirt and QEMU have separate CAs, and each host has a separate identity for each. C(libvirt) is
    C(O=corral.virt,OU=libvirt,CN=NAME), and only root can read its key. C(qemu) is C(O=corral.virt,OU=qemu,CN=NAME),
    and QEMU's group can read its key. A guest that escapes from QEMU finds no key that gives access to another
    hypervisor, and none that libvirt's clients would accept as a hypervisor's.
  - An identity has two certificates, one for servers and one for clients, each restricted to that purpose (critical).
  - The module replaces a CA that is about to expire. Every host that holds certificates trusts the new CA before it
    signs, and trusts the old CA until none of its certificates is in use, so that any two hosts can always reach each
    other. The same procedure replaces one CA for both, as created by the first version of this collection, by two. Each
    of the three steps (trust, sign, retire) needs one run of this module on all hosts; RV(rolling) shows whether a step
    is left.
  - The paths that libvirt and QEMU read become links into a directory C(corral), which holds complete sets of CA
    certificates, CRL, certificates and key. One rename replaces a set, so that after a power failure either the old or
    the new set is in use.
  - Before it writes to any host, the module reads the certificate revocation lists of all hosts of O(ca_dir), once in a
    run, and takes over revocations that O(ca_dir) has forgotten, such as after it was restored from an older backup. It
    warns of them, and of hosts that do not answer. It asks the hosts of O(hypervisors), the hosts of the play, and all
    other hosts of the inventory that O(ca_dir) has records of, B(also those that C(--limit) leaves out); it changes
    nothing there.
  - A host's list is never replaced by one that has revoked less.
  - A daemon that serves TLS reloads the files at once, without a restart.
options:
  state:
    description:
      - V(present) issues certificates to the host. In check mode nothing is created, neither on the controller nor on
        the host.
      - V(revoked) revokes all valid certificates of O(name), or of all names that are not in O(hypervisors). It changes
        files below O(ca_dir) and connects to no host. A host refuses these certificates after this module has run on it
        with V(present), and closes connections that clients with such certificates have open. In check mode, nothing is
        written, and later tasks of the same run with V(present) show what they would change because of it.
    type: str
    choices: [present, revoked]
    default: present
  name:
    description:
      - Common name of the certificates.
      - Defaults to the host's name in the inventory. C(controller) is the controller's name.
    type: str
  names:
    description:
      - All host names and IP addresses at which clients and other hypervisors connect to the host. A certificate that
        lacks one of them, or has an additional one, is replaced.
      - Defaults to the host's name in the inventory and its C(ansible_host).
    type: list
    elements: str
  identities:
    description: Identities that the host gets.
    type: list
    elements: str
    choices: [libvirt, qemu]
    default: [libvirt, qemu]
  ca_dir:
    description:
      - Directory of the CAs on the controller, created with mode 0700 if it does not exist.
      - Anyone who can read a C(ca-key.pem) below it has root access to every hypervisor. Keep it out of version
        control, and keep a backup.
      - The environment variable E(CORRAL_VIRT_CA_DIR) on the controller sets the default.
    type: path
    default: ~/.config/corral/ca
  ca_passphrase:
    description:
      - Passphrase of the CA keys. An unencrypted key in O(ca_dir) is encrypted with it.
      - The environment variable E(CORRAL_VIRT_CA_PASSPHRASE) on the controller sets the default.
    type: str
  ca_constraints:
    description:
      - Domains and networks to which new CAs are restricted, as in RFC 5280, section 4.2.1.10.
      - Without a domain any name is permitted, without a network any address.
      - The name in the controller's own certificate need not be listed.
    type: list
    elements: str
    default: []
  new_authority:
    description:
      - Create new CAs now. Set it for one host of a play only, or each host creates one.
      - Excludes O(ca_key).
    type: bool
    default: false
  controller:
    description:
      - Also issue a certificate to the controller, as a client of the hypervisors, in C(controller/) of O(ca_dir), for
        C(qemu+tls://HOST/system?pkipath=DIR) on the controller.
    type: bool
    default: false
  hypervisors:
    description:
      - With O(state=revoked), the names of all hypervisors. The module revokes the certificates of hypervisors that
        were in the same inventory when this module last ran on them, and that are now neither listed nor any other host
        of that inventory.
      - Under C(--limit), it revokes nothing and warns of them, because a host that was renamed gets new certificates
        only in a run that includes it.
      - With O(state=present), hosts of the inventory whose revocation lists the module reads before it writes any,
        beside those of the play and those that O(ca_dir) has records of.
    type: list
    elements: str
  days:
    description: Validity of new certificates, in days. At most 900, and never longer than the validity of the CA, which
      is 3650 for a new CA.
    type: int
    default: 365
  renew_before:
    description:
      - Renew certificates that are valid for fewer days than this. Must be less than O(days).
      - Each host adds some days of its own, at most as many again, so that not all hosts renew on the same day.
    type: int
    default: 30
  force:
    description: Issue new keys and certificates, whatever the state of the existing ones.
    type: bool
    default: false
  replace_authority:
    description:
      - Whether to replace certificates of another authority. This shuts out every client and hypervisor with a
        certificate of the other authority, such as a second administrator's controller.
      - When V(false), the module refuses a host with certificates of another authority before it changes anything. Two
        controllers that share hosts must share the authority, see O(ca_dir) and O(ca_key).
    type: bool
    default: false
  pki_dir:
    description: Directory on the host below which libvirt and QEMU look for their files.
    type: path
    default: /etc/pki
  qemu_group:
    description:
      - Group that QEMU runs as.
      - Defaults to the first of C(qemu), C(libvirt-qemu) and C(kvm) that exists on the host.
    type: str
  daemon:
    description:
      - Daemon that serves TLS, and that reloads the files if it listens on port 16514.
      - Defaults to the daemon that has an administration socket.
    type: str
    choices: [libvirtd, virtproxyd]
  ca_certificate:
    description:
      - Certificate of libvirt's CA, as PEM text, instead of those in O(ca_dir). If there are several certificates, all
        are trusted, and the one that O(ca_key) belongs to signs, or the first one.
      - Without O(ca_key), the module does not use O(ca_dir) and O(controller). RV(requests) then holds the requests for
        that CA to sign; pass the signed certificates as O(certificates).
    type: str
  ca_key:
    description:
      - Private key of the CA of O(ca_certificate), as PEM text, for example from a vault. It is not written to any
        disk, and not sent to the host. The certificates that it signs, and the controller's certificate, are stored in
        O(ca_dir). If O(ca_dir) is the default and the home directory cannot be written, as in a job in a container, the
        module keeps them only until Ansible ends, and issues no certificate to the controller.
      - Also requires O(qemu_ca_certificate) and O(qemu_ca_key) if O(identities) contains V(qemu).
    type: str
  ca_crl:
    description:
      - Certificate revocation list of the CA of O(ca_certificate), as PEM text. Excludes O(ca_key), with which the
        module signs the list itself.
      - An expired list is refused, because libvirt would refuse all clients.
      - A list that lacks revocations of the list in place does not replace it. The module warns, or fails if it is to
        install O(certificates).
    type: str
  qemu_ca_certificate:
    description: Certificate of QEMU's CA; otherwise like O(ca_certificate).
    type: str
  qemu_ca_key:
    description: Private key of the CA of O(qemu_ca_certificate), as PEM text.
    type: str
  qemu_ca_crl:
    description: Certificate revocation list of the CA of O(qemu_ca_certificate), as PEM text. QEMU checks only its
      clients against it.
    type: str
  retired_ca_certificates:
    description: Certificates, as PEM text, of former CAs. Hosts that still trust one of them stop trusting it.
    type: str
  revoked:
    description: Subjects of revoked certificates that are still valid, by serial number (hexadecimal). The module
      closes their connections.
    type: dict
  certificates:
    description:
      - Certificates signed by the CAs of O(ca_certificate) and O(qemu_ca_certificate), as PEM text, by identity. Each
        text contains one certificate for servers and one for clients.
    type: dict
requirements:
  - cryptography >= 3.1 on the host
  - cryptography >= 38.0.4 on the controller
extends_documentation_fragment:
  - corral.virt.connection.attributes
"""

EXAMPLES = r"""
- name: Issue certificates to every hypervisor
  corral.virt.virt_tls:
    names:
      - "{{ inventory_hostname }}"
      - "{{ ansible_facts.default_ipv4.address }}"
    ca_dir: ~/cloud/ca

- name: Sign with CAs that several controllers share
  corral.virt.virt_tls:
    ca_certificate: "{{ lookup('ansible.builtin.file', 'files/libvirt-ca.pem') }}"
    ca_key: "{{ vault_ca_key }}"
    qemu_ca_certificate: "{{ lookup('ansible.builtin.file', 'files/qemu-ca.pem') }}"
    qemu_ca_key: "{{ vault_qemu_ca_key }}"
    controller: true

- name: Revoke all certificates of a compromised hypervisor
  corral.virt.virt_tls:
    state: revoked
    name: hyper3
  run_once: true

- name: Create the requests for a company's own CAs to sign
  corral.virt.virt_tls:
    ca_certificate: "{{ lookup('ansible.builtin.file', 'company-ca.pem') }}"
    qemu_ca_certificate: "{{ lookup('ansible.builtin.file', 'company-qemu-ca.pem') }}"
  register: tls
"""

RETURN = r"""
certificates:
  description: The installed certificates, by identity and purpose (C(server), C(client)). In check mode, the
    certificates before the change.
  returned: success
  type: dict
  contains:
    subject:
      description: Distinguished name, as compared with C(tls_allowed_dn_list).
      type: str
      returned: success
      sample: O=corral.virt,OU=libvirt,CN=hyper1
    names:
      description: Names and addresses that the certificate is valid for.
      type: list
      elements: str
      returned: success
    not_after:
      description: End of validity, UTC.
      type: str
      returned: success
      sample: "2027-11-21T09:30:00Z"
    serial:
      description: Serial number, hexadecimal.
      type: str
      returned: success
    fingerprint:
      description: SHA-256 fingerprint of the certificate, hexadecimal.
      type: str
      returned: success
renewed:
  description: Identities that got, or in check mode would get, new certificates.
  returned: success
  type: list
  elements: str
  sample: [libvirt]
steps:
  description: Steps that were done, or in check mode would be done.
  returned: success
  type: list
  elements: str
  sample: ["issue libvirt certificate (names)"]
trusts:
  description: CAs that the host trusts, as hexadecimal SHA-256 fingerprints of their certificates, by identity.
  returned: success
  type: dict
rolling:
  description: While a CA is being replaced, the hosts that do not yet trust the new CA, by authority; if all do, the
    hosts that have certificates of the old CA.
  returned: success, unless other CAs than the controller's sign
  type: dict
revoked:
  description: Names whose certificates were revoked, or in check mode would be revoked.
  returned: with O(state=revoked)
  type: list
  elements: str
requests:
  description: Requests for the CAs to sign, as PEM text, by identity. Each request is for two certificates. None in
    check mode.
  returned: with O(ca_certificate) and without O(ca_key)
  type: dict
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._tls.run_tls import converge
from ansible_collections.corral.virt.plugins.module_utils._tls.run_tls_arguments import OPTIONS


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module):
        module.exit_json(**converge(module.params, Gate(check_mode=module.check_mode)))


if __name__ == "__main__":
    main()
