# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory plugin: every guest of every hypervisor as a host."""

from __future__ import annotations

DOCUMENTATION = r"""
name: virt
short_description: List the guests of libvirt hypervisors as hosts
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Queries every hypervisor for its guests, all hypervisors in parallel, and adds a host for each guest.
  - The hypervisors are the hosts that an earlier inventory source added to the group O(group). Ansible reads the
    sources in a directory in alphabetical order, so C(hosts.yml) comes before C(virt.yml).
  - Guests are in the group C(guests), and in its child groups C(on_HYPERVISOR), C(guests_running), C(guests_paused) or
    C(guests_shutdown), and C(tag_TAG) for every tag.
  - A guest with a O(corral.virt.virt_domain#module:login_user) is also in the group C(guests_login_USER), whose
    variable C(ansible_user) is that user. A value that C(group_vars), C(host_vars), or the inventory for the guest or
    another group of it sets, takes precedence.
  - A hypervisor that does not answer stays a host, with the variable RV(ignore:virt_reachable=false). One warning names
    all such hypervisors and gives the reasons. The plugin gives up on a hypervisor that is silent for O(timeout).
  - If a guest's name contains anything but letters, digits, C(.), C(_) and C(-), or is a number or an address, the
    guest is shown under an alias (C(alias_Windows_10_) and 16 digits), which no other guest can have. C(virt_name) is
    its real name.
  - A guest with the name of a host that is not in the group C(guests) is not shown, and a warning says so. The plugin
    never replaces variables of a host that another source defines.
  - The plugin does not use an address as C(ansible_host) if it belongs to another host of the inventory, if two running
    guests claim it, or if it is loopback, multicast, link-local or unspecified. If two guests were seen at the same
    address, it belongs to the guest that has it from a DHCP server, or else to the guest that was seen there last. A
    warning names the other guest.
  - If the collection knows the SSH host key of a guest (see M(corral.virt.virt_domain)), SSH verifies the guest against
    this key under the guest's own name, whatever its current address is.
  - The name of the inventory file must end in C(virt.yml) or C(virt.yaml).
notes:
  - Host variables of a guest are C(virt_hypervisor), C(virt_name), C(virt_state), C(virt_uuid), C(virt_vcpus),
    C(virt_memory_mib), C(virt_tags), C(virt_macs), C(virt_addresses) and C(virt_title); C(ansible_host) if an address
    is known; C(ansible_ssh_common_args) if the host key is known, followed by the value that the inventory or
    C(ansible.cfg) sets for it; C(ansible_ssh_host_key_checking=true) beside it, unless the inventory sets that variable
    or C(ansible_host_key_checking), because AWX disables the check for all jobs.
  - Control characters in names, titles and tags are shown as C(\\x1b).
  - Names and titles are untrusted; templates in them are never evaluated.
requirements:
  - libvirt-python and lxml on the controller
extends_documentation_fragment:
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
options:
  plugin:
    description: Identifies the file as a source for this plugin.
    type: str
    required: true
    choices: [corral.virt.virt, virt]
  group:
    description: Group of the hypervisors.
    type: str
    default: hyper
    env:
      - name: CORRAL_VIRT_GROUP
  hypervisors:
    description:
      - Hypervisors, each with a libvirt URI, instead of the hosts in O(group). The plugin adds them to that group. URIs
        may be templates, like O(uri).
    type: dict
  uri:
    description:
      - libvirt URI of a hypervisor, a template with the variables of the hypervisor. These include the variables in
        C(group_vars) and C(host_vars) beside the inventory.
      - C(virt_address) is the hypervisor's C(ansible_host), or else its name, in the form that URIs require;
        C(virt_pki_dir) is O(pki_dir).
      - With C(qemu+ssh://) the SSH client must log in without a prompt; the plugin disables prompts. C(qemu+libssh://)
        hangs in libvirt.
      - Reading requires neither root nor a certificate; see C(hypervisor_readers) of the role
        P(corral.virt.hypervisor#role).
    type: str
    default: qemu+tls://{{ virt_address }}/system?pkipath={{ virt_pki_dir }}
    env:
      - name: CORRAL_VIRT_URI
  pki_dir:
    description:
      - Directory of the controller's own certificate, a template like O(uri).
      - Defaults to the directory that the role P(corral.virt.pki#role) uses.
      - O(ca_file), O(cert_file) and O(key_file) take precedence.
    type: str
    default: "{{ pki_ca_dir | default(lookup('ansible.builtin.env', 'CORRAL_VIRT_CA_DIR') or '~/.config/corral/ca')
      }}/controller"
    env:
      - name: CORRAL_VIRT_PKI_DIR
  ca_file:
    description:
      - File with the certificate of libvirt's CA, a template like O(uri). Use O(ca_file), O(cert_file) and O(key_file)
        where the certificate is not in a directory with libvirt's file names, such as in a job of AWX, which writes
        credentials to files with random names.
      - Set all three or none. C(virt_pki_dir) is then a private directory of links to them, which the plugin removes
        after it has queried the hypervisors.
      - They take precedence over O(pki_dir), wherever either is set. The plugin fails if a file is missing, or
        the certificate has expired, does not match the key, or is not signed by the CA.
      - There is no file for a certificate revocation list, so a revoked certificate of a hypervisor is not recognised.
    type: str
    env:
      - name: CORRAL_VIRT_CA_FILE
  cert_file:
    description: File with the controller's certificate, see O(ca_file).
    type: str
    env:
      - name: CORRAL_VIRT_CERT_FILE
  key_file:
    description: File with the private key of O(cert_file), not encrypted, see O(ca_file).
    type: str
    env:
      - name: CORRAL_VIRT_KEY_FILE
  known_hosts:
    description:
      - File with the SSH host keys of the guests, under their names; a template like O(uri). Empty for no file.
      - Defaults to the file that the role P(corral.virt.guests#role) uses, which is its variable C(guests_known_hosts),
        or else C(~/.config/corral/known_hosts).
    type: str
    env:
      - name: CORRAL_VIRT_KNOWN_HOSTS
  host_keys:
    description:
      - Sources of a guest's SSH host key, in order. The first source that has a key for the guest is used, and no
        other.
      - V(file) is O(known_hosts). V(record) is the key that the collection recorded in the guest's metadata, as its
        hypervisor reports it over the verified connection. It needs no file, so a job with an empty home directory
        verifies guests too, and so does a job of AWX, which runs elsewhere than the inventory was read. It requires
        OpenSSH 8.5 on the machine that connects to the guest.
      - With V(record), a hypervisor can impersonate a guest that is not in the file and whose own hypervisor does not
        answer.
        The plugin does not use the record if two hypervisors report different keys for one name.
      - Defaults to V(file,record) with O(ca_file), and to V(file) otherwise.
    type: list
    elements: str
    choices: [file, record]
    env:
      - name: CORRAL_VIRT_HOST_KEYS
  addresses:
    description:
      - Sources of a guest's addresses, in order. The first source that knows an address is used.
      - V(record) is the address that the collection recorded when it assigned it to the guest. V(lease) is the DHCP
        server of libvirt's own networks. V(seen) is the address at which M(corral.virt.virt_addresses) or
        O(corral.virt.virt_domain#module:wait_for_ip) last saw the guest. V(arp) is the hypervisor's ARP table, as read
        by libvirt. V(agent) is the guest agent.
      - The plugin queries agents last, in parallel and for three seconds in total. It skips them if its connection is
        read-only.
    type: list
    elements: str
    choices: [record, lease, seen, arp, agent]
    default: [record, lease, seen, arp, agent]
    env:
      - name: CORRAL_VIRT_ADDRESSES
  prefer:
    description: Which of a guest's addresses becomes C(ansible_host), best first. V(ipv4), V(ipv6), or a network such
      as V(10.1.0.0/16).
    type: list
    elements: str
    default: [ipv4, ipv6]
    env:
      - name: CORRAL_VIRT_PREFER
  filters:
    description:
      - Conditions, all of which a guest must meet to become a host. Written as in C(when), with the variables listed in
        the notes.
    type: list
    elements: str
    default: []
  exclude_filters:
    description: Conditions, any of which keeps a guest out. Written as O(filters).
    type: list
    elements: str
    default: []
  hostnames:
    description:
      - Expressions for the name of a guest in the inventory, with the variables listed in the notes. The first one that
        yields a text is used, or else the guest's own name.
      - With V(virt_name ~ '.' ~ virt_hypervisor), guests with the same name on two hypervisors are both shown.
      - A result that is not safe as the name of a host becomes an alias, as a guest's own name does. SSH still verifies
        the guest under its own name.
      - With O(strict), an expression that fails is an error.
    type: list
    elements: str
    default: []
  hostvars_prefix:
    description: Prefix of the variables of a guest. C(virt_hypervisor), C(virt_name) and C(virt_uuid) keep their names,
      because the collection reads them.
    type: str
    default: virt_
  hypervisors_only:
    description: Add the hypervisors of O(hypervisors) and no guests. No hypervisor is queried.
    type: bool
    default: false
  connection:
    description:
      - How Ansible reaches the guests.
      - V(direct) connects to the address of the guest.
      - V(jump) connects through the hypervisor, with C(ProxyJump) of SSH, to C(ansible_host) of the hypervisor, and its
        C(ansible_user) and C(ansible_port) if they are set. For the hypervisor, SSH uses its own configuration, keys
        and C(known_hosts). Guests in libvirt's own networks may then have the same address on several hypervisors;
        C(ansible_control_path) keeps the connections to them apart.
      - V(agent) runs commands through the guest agent, with the connection plugin C(community.libvirt.libvirt_qemu) of
        the collection community.libvirt, and the URI of the hypervisor (O(uri)), which must permit writing. The guest
        needs no network.
    type: str
    choices: [direct, jump, agent]
    default: direct
    env:
      - name: CORRAL_VIRT_CONNECTION
  concurrency:
    description: Number of hypervisors to query in parallel.
    type: int
    default: 32
    env:
      - name: CORRAL_VIRT_CONCURRENCY
  timeout:
    description:
      - Seconds of silence after which the plugin gives up on a hypervisor. Each reply restarts the timeout.
      - A silent hypervisor gets four times as long while other hypervisors still answer, because a busy controller may
        be the cause.
    type: float
    default: 8
    env:
      - name: CORRAL_VIRT_TIMEOUT
  strict_hosts:
    description:
      - Fail when a hypervisor does not answer.
      - By default, Ansible warns about a source that fails and continues without it. The command then ends with 0, and
        no guest is in the inventory. To make the command fail, also set
        C(ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED=true), or C(any_unparsed_is_failed) in the section C([inventory])
        of C(ansible.cfg).
    type: bool
    default: false
    env:
      - name: CORRAL_VIRT_STRICT_HOSTS
  show_stale:
    description:
      - Show the guests of a hypervisor that does not answer as it last reported them. They have the variable
        C(virt_stale=true), and are in the group C(guests_stale) instead of the group of their state.
      - A guest that another hypervisor has now is not shown as stale.
      - Requires O(cache=true) and an O(cache_plugin) that keeps files. The last answers are kept beside the cache, and
        do not expire.
    type: bool
    default: false
    env:
      - name: CORRAL_VIRT_SHOW_STALE
"""

EXAMPLES = r"""
# inventory/virt.yml, beside a hosts.yml with the group hyper: this is enough after the role pki has run
plugin: corral.virt.virt
---
# through SSH, only running guests
plugin: corral.virt.virt
uri: qemu+ssh://root@{{ virt_address }}/system
filters:
  - virt_state == 'running'
---
# through SSH, with a key of hypervisor_readers, which permits nothing else
plugin: corral.virt.virt
uri: qemu+ssh://corral-reader@{{ virt_address }}/system?keyfile={{ '~/.ssh/corral-reader' | expanduser }}
---
# in AWX: a credential sets CORRAL_VIRT_CA_FILE, CORRAL_VIRT_CERT_FILE and CORRAL_VIRT_KEY_FILE to files of its own
plugin: corral.virt.virt
strict_hosts: true # otherwise AWX removes the guests of a hypervisor that does not answer
---
# one machine, without another source; groups by memory and vCPUs, a variable for all guests, a cache of five minutes
plugin: corral.virt.virt
hypervisors:
  localhost: qemu:///system
addresses: [lease]
groups:
  large: virt_memory_mib >= 8192
keyed_groups:
  - key: virt_vcpus
    prefix: vcpus
compose:
  ansible_user: "'debian'"
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.cache/corral
cache_timeout: 300
"""

import contextlib
import functools
import ipaddress
import typing as t
import urllib.parse

from ansible import constants as C  # noqa: N812
from ansible.errors import AnsibleError, AnsibleParserError
from ansible.inventory.helpers import get_group_vars, sort_groups
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable, get_cache_plugin
from ansible.plugins.loader import connection_loader
from ansible.utils.vars import combine_vars
from ansible.vars.plugins import get_vars_from_inventory_sources

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, VirtError
from ansible_collections.corral.virt.plugins.module_utils._system import configuration
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import OWNER
from ansible_collections.corral.virt.plugins.module_utils._tls import files_credentials
from ansible_collections.corral.virt.plugins.plugin_utils._authority import credential_files
from ansible_collections.corral.virt.plugins.plugin_utils._controller.ansible_core import (
    is_trusted_as_template,
    trust_as_template,
)
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import (
    guest_addresses,
    inventory_guests,
    inventory_sources,
    known_hosts,
)
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import hypervisors as _hypervisors
from ansible_collections.corral.virt.plugins.plugin_utils._inventory.inventory_guests import Facts
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable, templated, trusted

# as a default above, Ansible would render it too early
KNOWN_HOSTS = "{{ guests_known_hosts | default('~/.config/corral/known_hosts') }}"
HOST_KEY_CHECKING = ("ansible_ssh_host_key_checking", "ansible_host_key_checking")  # Ansible's own two names
Stored = dict[str, t.Any]  # answers in a cache, by hypervisor
RESERVED = {"all", "ungrouped", *C.LOCALHOST}


class Answer(t.NamedTuple):
    """A hypervisor's guests, and its own addresses."""

    guests: list[Facts]
    own: list[str]
    stale: bool = False  # what was last known of one that does not answer now


def _stale(had: t.Mapping[str, t.Any]) -> Answer:
    return Answer([{**facts, "stale": True} for facts in had["guests"]], had["own"], stale=True)


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """Queries hypervisors, and adds their guests to the inventory."""

    NAME = "corral.virt.virt"
    _keying = False

    def verify_file(self, path: str) -> bool:
        """True if the file's name is one of ours."""
        return bool(super().verify_file(path)) and path.endswith(("virt.yml", "virt.yaml"))

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        """Add the guests of the inventory's hypervisors."""
        super().parse(inventory, loader, path, cache)
        self._check_names(self._read_config_data(path))
        self._sources = [*inventory.processed_sources, path]
        self._known_hosts: dict[str, str] = {}
        self._named: dict[str, known_hosts.KeyedNames] = {}
        self._added_groups: dict[str, str] = {}
        self._login_groups: set[str] = set()
        self._jumps: dict[str, str] = {}
        self._variables_of_groups: dict[frozenset[str], Facts] = {}
        self._check_options()
        names = self._hypervisors()
        if self.get_option("hypervisors_only"):
            return
        with contextlib.closing(credential_files.CredentialFiles(C.DEFAULT_LOCAL_TMP)) as self._credentials:
            self._uri_of = uris = self._uris(names)
            answers = self._answers(uris, path, cache)
        for name in uris:
            inventory.set_variable(name, "virt_reachable", name in answers and not answers[name].stale)
        self._add_groups(uris)
        later, unreadable = inventory_sources.hosts_read_later(self.loader, path)
        for warning in unreadable:
            self._warn(warning)
        self._add_guests(
            {name: answer.guests for name, answer in answers.items()}, {**later, **self._strangers(answers)}
        )

    def _warn(self, text: str) -> None:
        self.display.warning(printable(text))

    def _check_names(self, config: t.Mapping[str, t.Any]) -> None:
        """Raises AnsibleParserError for unknown options, such as misspelt ones."""
        known = self.option_definitions.keys()
        problems = [inventory_guests.unknown(str(option), known) for option in config if option not in known]
        if problems:
            raise AnsibleParserError(printable("; ".join(problems)))

    def _check_options(self) -> None:
        try:
            for kind in {*self.get_option("prefer")} - {"ipv4", "ipv6"}:
                ipaddress.ip_network(kind, strict=False)
        except ValueError as error:
            raise AnsibleParserError(f"prefer: {error}; use ipv4, ipv6 or a network such as 10.1.0.0/16") from error
        problems = inventory_guests.contradictions({name: self.get_option(name) for name in self.option_definitions})
        if problems:
            raise AnsibleParserError(printable("; ".join(problems)))

    def _hypervisors(self) -> list[str]:
        """Names of the hypervisors; those of the options become hosts."""
        group, explicit = self.get_option("group"), self.get_option("hypervisors")
        self.inventory.add_group(group)
        for name in explicit or {}:
            self.inventory.add_host(name, group=group)
        names = explicit or [host.name for host in self.inventory.groups[group].get_hosts()]
        if not names:
            self._warn(
                f"no guests can be shown: group {group} is empty. List the hypervisors in a source that is read "
                "earlier (hosts.yml in the same directory), or in the option hypervisors."
            )
        return list(names)

    def _uris(self, names: t.Iterable[str]) -> dict[str, str]:
        """Every hypervisor's URI by name."""
        explicit = self.get_option("hypervisors") or {}
        return {name: self._uri(name, explicit.get(name) or self.get_option("uri")) for name in names}

    def _uri(self, name: str, template: str) -> str:
        pki_dir = self._pki_dir(name)
        address = inventory_guests.in_uri(self._render(name, "{{ ansible_host | default(inventory_hostname) }}"))
        uri = self._render(name, template, virt_address=address, virt_pki_dir=urllib.parse.quote(pki_dir))
        return inventory_guests.unattended(uri)

    def _pki_dir(self, name: str) -> str:
        """The directory in which libvirt finds the certificate for a hypervisor."""
        paths = {option: self._render(name, self.get_option(option) or "") for option in credential_files.OPTIONS}
        if not any(paths.values()):
            return t.cast(str, self.loader.path_dwim(self._render(name, self.get_option("pki_dir"))))
        try:
            return self._credentials.directory(
                {option: self.loader.path_dwim(path) if path else "" for option, path in paths.items()}
            )
        except BadInput as error:
            raise AnsibleParserError(printable(str(error))) from error

    def _answers(self, uris: dict[str, str], path: str, cache: bool) -> dict[str, Answer]:
        """Answers by hypervisor: new, cached, or last known ones."""
        key, sources = self.get_cache_key(path), self.get_option("addresses")
        kept: dict[str, t.Any] = {}
        if self.get_option("cache") and cache:
            kept = self.cache.get(key) or {}
        questions = {name: [self._credentials.named(uri), *sources] for name, uri in uris.items()}
        known = {name: kept[name] for name in uris if name in kept and kept[name]["asked"] == questions[name]}
        asked = {name: uri for name, uri in uris.items() if name not in known}
        fresh, reasons = self._ask(asked, sources)
        stored = {name: {"asked": questions[name], "guests": had.guests, "own": had.own} for name, had in fresh.items()}
        if self.get_option("cache") and not kept:
            # Only as a whole: each writing starts the cache's clock anew. Who did not answer is asked again next time.
            self.cache[key] = stored
        past = self._last_known(key, stored, questions) if self.get_option("show_stale") else {}
        stale = {name: _stale(past[name]) for name in reasons if name in past}
        self._tell(reasons, len(uris), stale)
        return {**{name: Answer(item["guests"], item.get("own", [])) for name, item in known.items()}, **fresh, **stale}

    def _last_known(self, key: str, fresh: Stored, questions: t.Mapping[str, list[str]]) -> Stored:
        """Last answers of all hypervisors, stored beside the cache without its age limit."""
        options = {"_uri": "cache_connection", "_prefix": "cache_prefix"}
        given = {word: self.get_option(option) for word, option in options.items() if self.get_option(option)}
        given["_prefix"] = f"{given.get('_prefix', '')}last_known_"
        store = get_cache_plugin(self.get_option("cache_plugin"), _timeout=0, **given)
        old = {name: had for name, had in (store.get(key) or {}).items() if had["asked"] == questions.get(name)}
        store[key] = {**old, **fresh}
        store.set_cache()
        return old

    def _ask(self, uris: dict[str, str], sources: list[str]) -> tuple[dict[str, Answer], dict[str, str]]:
        """The answers, and reasons why the others did not answer."""
        timeout_s = self.get_option("timeout")
        try:
            if uris:
                _hypervisors.check_libraries()
        except VirtError as error:
            raise AnsibleParserError(str(error)) from error
        self._own: dict[str, list[str]] = {name: [] for name in uris}
        ask = functools.partial(_hypervisors.guests, timeout_s=timeout_s)
        questions = {name: functools.partial(ask, uri, sources, own=self._own[name]) for name, uri in uris.items()}
        replies, failures = _hypervisors.ask(questions, concurrency=self.get_option("concurrency"), timeout_s=timeout_s)
        answers: dict[str, Answer] = {}
        for name, found in replies.items():
            try:
                answers[name] = Answer([_hypervisors.facts(reply, sources) for reply in found], self._own[name])
            except (VirtError, ValueError) as error:
                failures[name] = error
        return answers, {name: self._credentials.named(_hypervisors.reason(error)) for name, error in failures.items()}

    def _tell(self, reasons: t.Mapping[str, str], asked: int, stale: t.Container[str]) -> None:
        """One warning about all hypervisors that did not answer."""
        lost = inventory_guests.lost(reasons, asked, stale)
        if lost and self.get_option("strict_hosts"):
            raise AnsibleParserError(printable(lost))
        if reasons and len(reasons) == asked and all(map(files_credentials.is_missing, reasons.values())):
            # Before the first run nothing is wrong.
            text = f"No guests are shown: {min(reasons.values())}, in the playbook corral.virt.site"
            self.display.display(str(printable(text)), stderr=True)
        elif lost:
            self._warn(lost)

    def _strangers(self, answers: t.Mapping[str, Answer]) -> dict[str, str]:
        """Every address and name of a host that is none of our guests, with that host."""
        found: dict[str, str] = {}
        for host in sorted(self._others(), key=lambda host: t.cast(str, host.name)):
            own = self._own.get(host.name, []) + (answers[host.name].own if host.name in answers else [])
            try:
                own.append(self._render(host.name, "{{ ansible_host | default(inventory_hostname) }}"))
            except AnsibleError:
                own.append(host.name)  # where it is, this host alone knows
            for address in own:
                found.setdefault(inventory_guests.destination(address), host.name)
        return found

    def _others(self) -> list[t.Any]:
        """Hosts that no guest may impersonate: hypervisors, and all outside the group of guests."""
        hypervisors = {host.name for host in self.inventory.groups[self.get_option("group")].get_hosts()}
        hosts = self.inventory.hosts.values()
        return [
            host
            for host in hosts
            if host.name in hypervisors or inventory_guests.GROUP not in {group.name for group in host.get_groups()}
        ]

    def _add_groups(self, uris: t.Iterable[str]) -> None:
        """Add groups that plays name, even if they are empty."""
        self.inventory.add_group(inventory_guests.GROUP)
        for group in [*inventory_guests.STATE_GROUPS, *(f"on_{name}" for name in uris)]:
            self._add_group(group)

    def _add_group(self, name: str) -> str:
        """The group of that name below the guests' group, created once."""
        if name not in self._added_groups:
            group = t.cast(str, self.inventory.add_group(self._sanitize_group_name(name)))
            self.inventory.add_child(inventory_guests.GROUP, group)
            merged = [other for other, made in self._added_groups.items() if made == group]
            if merged:
                self._warn(f"{name} and {merged[0]} are one group, {group}: a group name has no other characters")
            self._added_groups[name] = group
        return self._added_groups[name]

    def _add_guests(self, answers: dict[str, list[Facts]], strangers: t.Mapping[str, str]) -> None:
        name_of = self._named_by if self.get_option("hostnames") else inventory_guests.own_name
        guests, warnings = inventory_guests.chosen(answers, name_of)
        through = self.get_option("connection") == "jump"
        addresses, disputes = guest_addresses.reached_at(guests, strangers, self.get_option("prefer"), through=through)
        for warning in (*warnings, *disputes):
            self._warn(warning)
        self._recorded = inventory_guests.host_keys(answers, name_of)
        planned = {
            self._sanitize_group_name(group) for guest in guests.values() for group in inventory_guests.groups(*guest)
        }
        planned |= {
            found[0] for found in map(inventory_guests.login_group, (facts for _on, facts in guests.values())) if found
        }
        groups = RESERVED | planned | set(self.inventory.groups)
        hosts = {host.name.lower() for host in self._others()} | set(strangers)
        for name, (hypervisor, facts) in guests.items():
            reason = (
                "another host of this inventory has this name"
                if name.lower() in hosts
                else self._earlier(name, hypervisor, facts)
            )
            reason = "its name is reserved, or the name of a group" if name in groups else reason
            if reason:
                remedy = (
                    f"rename the guest, or put that host into the group {inventory_guests.GROUP} if it is this guest"
                )
                self._warn(f"guest {name} on {hypervisor} is not shown: {reason}; {remedy}")
                continue
            prefix = self.get_option("hostvars_prefix")
            variables = trusted(inventory_guests.variables(hypervisor, facts, addresses.get(name), prefix))
            if self._wanted(name, variables):
                self._add_guest(name, hypervisor, facts, variables, strangers)

    def _earlier(self, name: str, hypervisor: str, facts: Facts) -> str | None:
        """Why a guest cannot be shown because an earlier source shows another of its name; None if it can."""
        host = self.inventory.get_host(name) if name in self.inventory.hosts else None
        shown = host.vars if host else {}
        if "virt_hypervisor" not in shown or (shown["virt_hypervisor"], shown.get("virt_uuid")) == (
            hypervisor,
            facts["uuid"],
        ):
            return None
        return f"a source that was read earlier has a guest with this name, on {shown['virt_hypervisor']}"

    def _named_by(self, hypervisor: str, facts: Facts) -> str:
        """The name from the first of the option's expressions with a value, else the guest's own."""
        prefix = self.get_option("hostvars_prefix")
        variables = trusted(inventory_guests.variables(hypervisor, facts, None, prefix))
        for expression in self.get_option("hostnames"):
            try:
                name = self._compose(expression, variables)
            except AnsibleError as error:
                if not self.get_option("strict"):
                    continue
                where = f"{facts['name']} on {hypervisor}"
                problem = f"hostnames: {expression} cannot be evaluated for guest {where}: {error}"
                raise AnsibleParserError(printable(problem)) from error
            if name and isinstance(name, str):
                return inventory_guests.host_name(name)
        return inventory_guests.own_name(hypervisor, facts)

    def _wanted(self, name: str, variables: Facts) -> bool:
        self.templar.available_variables = {**variables, "inventory_hostname": name}
        return all(self._meets("filters", name)) and not any(self._meets("exclude_filters", name))

    def _meets(self, option: str, name: str) -> t.Iterator[bool]:
        """For each condition of that option, True if the current guest meets it."""
        for condition in self.get_option(option):
            try:
                yield bool(self.templar.evaluate_conditional(trust_as_template(condition)))
            except AnsibleError as error:
                raise AnsibleParserError(f"{option}: cannot be evaluated for guest {name}: {error}") from error

    def _add_guest(
        self, name: str, hypervisor: str, facts: Facts, variables: Facts, strangers: t.Mapping[str, str]
    ) -> None:
        before = dict(self.inventory.hosts[name].vars) if name in self.inventory.hosts else {}
        for group in inventory_guests.groups(hypervisor, facts):
            self.inventory.add_host(name, group=self._add_group(group))
        self._let_in(name, facts)
        variables |= self._way(name, hypervisor, facts)
        host = self.inventory.get_host(name)
        for key, value in variables.items():
            if key not in before:
                host.set_variable(key, value)  # the inventory's own way marks each text with its file, which takes long
        self._construct(name, host)
        if "ansible_host" not in before:
            self._check_destination(name, hypervisor, strangers)

    def _let_in(self, name: str, facts: Facts) -> None:
        """Set the guest's login user in a group of the lowest priority: the inventory's own variables win."""
        found = inventory_guests.login_group(facts)
        if found is None:
            return
        group = t.cast(str, self.inventory.add_group(self._sanitize_group_name(found[0])))
        known = self.inventory.groups[group]
        if group not in self._login_groups:
            is_new = not (known.hosts or known.child_groups or known.vars)
            if not is_new and known.vars.get("ansible_user") != found[1]:
                return  # another source has made something else of it
            self._login_groups.add(group)
            known.set_variable("ansible_user", trusted(found[1]))
            known.set_variable("ansible_group_priority", 0)
        self.inventory.add_host(name, group=group)

    def _construct(self, name: str, host: t.Any) -> None:
        """Add variables and groups that the options build from those of the guest."""
        strict = self.get_option("strict")
        if compose := self.get_option("compose"):
            self._set_composite_vars(compose, host.get_vars(), name, strict=strict)
        if groups := self.get_option("groups"):
            self._add_host_to_composed_groups(groups, host.get_vars(), name, strict=strict, fetch_hostvars=False)
        if keys := self.get_option("keyed_groups"):
            self._add_host_to_keyed_groups(keys, host.get_vars(), name, strict=strict, fetch_hostvars=False)

    def _check_destination(self, name: str, hypervisor: str, strangers: t.Mapping[str, str]) -> None:
        """Remove a composed ansible_host that is another host's or invalid: guests influence what it is composed of."""
        host = self.inventory.get_host(name)
        wanted = str(host.vars.get("ansible_host", name))
        owner = strangers.get(inventory_guests.destination(wanted))
        if owner or not inventory_guests.is_destination(wanted):
            del host.vars["ansible_host"]
            reason = f"which belongs to {owner}" if owner else "which is neither a host name nor an address"
            self._warn(f"guest {name} on {hypervisor} has no ansible_host: compose sets it to {wanted}, {reason}")

    def _add_host_to_keyed_groups(
        self, keys: t.Any, variables: Facts, host: str, *args: t.Any, **kwargs: t.Any
    ) -> None:
        """Add keyed groups, also for numbers, but never to a group of hypervisors."""
        hypervisors = self.inventory.groups[self.get_option("group")]
        closed = {hypervisors, *hypervisors.get_ancestors(), *hypervisors.get_descendants()}
        before, self._keying = {group for group in closed if self.inventory.hosts[host] in group.hosts}, True
        try:
            super()._add_host_to_keyed_groups(keys, variables, host, *args, **kwargs)
        finally:
            self._keying = False
        for group in closed - before:
            if self.inventory.hosts[host] in group.hosts:
                group.remove_host(self.inventory.hosts[host])
                self.inventory.hosts[host].remove_group(group)
                self._warn(f"guest {host} is not put into {group.name} by keyed_groups: it is a group of hypervisors")

    def _way(self, name: str, hypervisor: str, facts: Facts) -> Facts:
        """Variables by which Ansible reaches the guest."""
        if self.get_option("connection") == "agent":
            return t.cast(Facts, trusted(guest_addresses.agent(facts["name"], self._uri_of[hypervisor])))
        ours = [self._verified_by(name, hypervisor, facts) if facts["ssh_host_key"] else "", self._jump(hypervisor)]
        given = " ".join(filter(None, ours))
        found = self._ssh_args(name, given, verified=bool(ours[0])) if given else {}
        path = (
            {"ansible_control_path": trusted(guest_addresses.control_path(hypervisor, facts["uuid"]))}
            if ours[1]
            else {}
        )
        return {**found, **path}

    def _jump(self, hypervisor: str) -> str:
        """ssh arguments for a jump through the hypervisor; empty if not requested."""
        if self.get_option("connection") != "jump":
            return ""
        if hypervisor not in self._jumps:
            place = (
                "ansible_user | default('')",
                "ansible_host | default(inventory_hostname)",
                "ansible_port | default('')",
            )
            self._jumps[hypervisor] = guest_addresses.jump(
                *(self._render(hypervisor, f"{{{{ {item} }}}}") for item in place)
            )
        return self._jumps[hypervisor]

    def _ssh_args(self, name: str, given: str, *, verified: bool) -> Facts:
        """ssh arguments: ours first, as ssh's first value wins, then the user's, which a host's variable would hide."""
        ours, variables = trusted(given), self._variables(name)
        theirs = (
            variables["ansible_ssh_common_args"] if "ansible_ssh_common_args" in variables else _configured_ssh_args()
        )
        both = f"{ours} {theirs}" if theirs else ours
        is_inert = not templated(ours) and (not templated(theirs) or is_trusted_as_template(theirs))
        checked = {HOST_KEY_CHECKING[0]: True} if verified and not variables.keys() & HOST_KEY_CHECKING else {}
        return {"ansible_ssh_common_args": trust_as_template(both) if is_inert else both, **checked}

    def _verified_by(self, name: str, hypervisor: str, facts: Facts) -> str:
        """ssh arguments with the guest's key from the first source that has one; without any, ssh refuses.

        Keys are stored under the guest's own name, whatever name is shown.
        """
        path, own = self._known_hosts_of(hypervisor), inventory_guests.own_name(hypervisor, facts)
        if not path:
            return ""
        for source in self.get_option("host_keys") or (["file", "record"] if self.get_option("ca_file") else ["file"]):
            if source == "file" and own in self._names_in(path):
                break
            if source == "record" and name in self._recorded:
                return inventory_guests.ssh_args_of_key(self._recorded[name], own)
        return inventory_guests.ssh_args(path, own)

    def _known_hosts_of(self, hypervisor: str) -> str:
        if hypervisor not in self._known_hosts:
            template = self.get_option("known_hosts")
            path = self._render(hypervisor, KNOWN_HOSTS if template is None else template)
            self._known_hosts[hypervisor] = self.loader.path_dwim(path) if path else ""
        return self._known_hosts[hypervisor]

    def _names_in(self, path: str) -> known_hosts.KeyedNames:
        """The names in a file of host keys; empty if it cannot be read."""
        if path not in self._named:
            try:
                self._named[path] = known_hosts.KeyedNames(configuration.read(path, denied=OWNER))
            except VirtError:
                self._named[path] = known_hosts.KeyedNames("")
        return self._named[path]

    def _compose(self, template: str, variables: Facts, *args: t.Any) -> t.Any:
        """The value of an expression, as trusted as what it was built from."""
        value = trusted(super()._compose(template, variables, *args))
        return trusted(str(value)) if self._keying and isinstance(value, (int, float)) else value

    def _render(self, name: str, template: str, **more: str) -> str:
        """The operator's template, rendered with a hypervisor's variables."""
        self.templar.available_variables = {**self._variables(name), **more}
        return str(self.templar.template(trust_as_template(template)))

    def _variables(self, name: str) -> Facts:
        """All variables of a host, including files beside the inventory, which Ansible itself reads later."""
        host = self.inventory.get_host(name)
        found = self._group_variables({self.inventory.groups["all"], *host.get_groups()})
        for more in (host.get_vars(), self._beside([host]), self._vars):
            found = combine_vars(found, more)
        return found

    def _group_variables(self, groups: t.Collection[t.Any]) -> Facts:
        """Merged variables of these groups, cached: thousands of guests are in the same ones."""
        names = frozenset(group.name for group in groups)
        if names not in self._variables_of_groups:
            ordered = sort_groups(groups)
            self._variables_of_groups[names] = combine_vars(get_group_vars(ordered), self._beside(ordered))
        return self._variables_of_groups[names]

    def _beside(self, entities: list[t.Any]) -> Facts:
        return t.cast(Facts, get_vars_from_inventory_sources(self.loader, self._sources, entities, "all"))


@functools.cache
def _configured_ssh_args() -> str:
    """The ssh arguments of ansible.cfg, the environment and the command line."""
    connection_loader.get("ssh", class_only=True)  # makes its options known
    return str(C.config.get_config_value("ssh_common_args", plugin_type="connection", plugin_name="ssh") or "")
