"""What a lab writes for its users: inventory, variables, ssh's files."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

from corral_lab import kvm, webserver
from corral_lab.host import NOT_ROOT, USER, Host, hosts, nameservers
from corral_lab.places import CHECKOUT, Lab, write

HEADER = "# Written by tests/lab/lab.py up; gone with the lab.\n---\n"


def write_ssh(lab: Lab) -> None:
    """Keys, and the host keys we made ourselves: nobody is asked to trust anything."""
    lab.build.mkdir(parents=True, exist_ok=True)
    for key in (lab.key, lab.key.with_suffix(".pub")):
        write(lab.build / key.name, key.read_text(), mode=0o600)
    known = lab.build / "known_hosts"
    ours = {word for host in hosts(lab).values() for word in (host.name, host.address)}
    lines = known.read_text().splitlines() if known.exists() else []
    # Guests' keys that others added stay.
    lines = [line for line in lines if not ours & set(line.split()[0].split(","))] if ours else lines
    lines += [f"{host.name},{host.address} {_host_key(lab, host)}" for host in hosts(lab).values()]
    write(known, "".join(f"{line}\n" for line in lines))
    per_host = (
        f"Host {host.name}\n  HostName {host.address}\n  HostKeyAlias {host.name}\n" for host in hosts(lab).values()
    )
    everywhere = f"""
Host *
  User root
  IdentityFile "{lab.build / lab.key.name}"
  IdentitiesOnly yes
  UserKnownHostsFile "{known}"
  StrictHostKeyChecking yes
  BatchMode yes
"""
    write(lab.build / "ssh_config", "\n".join(per_host) + everywhere)


def write_inventory(lab: Lab, *, image: Path | None, mirror: str | None = None) -> None:
    """An inventory for `ansible-playbook -i`."""
    known = hosts(lab)
    place = lab.build / "inventory"
    shutil.rmtree(place / "host_vars", ignore_errors=True)
    _yaml(
        place / "hosts.yml",
        {"hyper": {"hosts": {host.name: {"ansible_host": host.address} for host in known.values()}}},
    )
    _yaml(place / "virt.yml", {"plugin": "corral.virt.virt"})
    _yaml(place / "group_vars" / "all" / "lab.yml", _everywhere(lab, image, mirror))
    trust = {"pki_ca_dir": str(lab.build / "ca"), "guests_known_hosts": str(lab.build / "known_hosts")}
    _yaml(place / "group_vars" / "hyper" / "lab.yml", HYPER | trust)
    for host in known.values():
        user = {"ansible_user": USER, "ansible_become": True} if host.name == NOT_ROOT else {}
        _yaml(
            place / "host_vars" / host.name / "lab.yml", {**user, "hypervisor_libvirtd_conf": {"host_uuid": host.uuid}}
        )


# Containers of one machine see its cgroups read-only, so QEMU cannot be put into one of its own.
HYPER = {
    "ansible_user": "root",
    "ansible_python_interpreter": "/usr/bin/python3",
    # On a machine that does much else, a connection that was kept open breaks now and then.
    "ansible_ssh_retries": 2,
    "hypervisor_qemu_conf": {"cgroup_controllers": []},
}


def _everywhere(lab: Lab, image: Path | None, mirror: str | None) -> dict[str, Any]:
    known_hosts = f'UserKnownHostsFile="{lab.build / "known_hosts"}"'
    variables: dict[str, Any] = {
        "ansible_ssh_private_key_file": str(lab.build / lab.key.name),
        "ansible_ssh_common_args": f"-o '{known_hosts}' -o StrictHostKeyChecking=yes",
        "virt_lab_name": lab.name,
        "virt_lab_ssh_public_key": lab.key.with_suffix(".pub").read_text().strip(),
        "virt_lab_known_hosts": str(lab.build / "known_hosts"),
        "virt_lab_gateway": lab.gateway,
        "virt_lab_network": lab.network,
        "virt_lab_prefix_length": 24,
        "virt_lab_nameservers": nameservers(),
        # Addresses <prefix>.100 to <prefix>.199 are for guests.
        "virt_lab_guest_prefix": lab.prefix,
        "virt_lab_kvm": kvm.node(lab.state).exists(),
    }
    if image:
        variables["virt_lab_image_url"] = f"{webserver.url(lab)}/{image.name}"
        variables["virt_lab_image_digest_command"] = shlex.join(
            [
                "python3",
                str(CHECKOUT / "tests/lab/lab.py"),
                "image",
                "--digest",
                *(["--mirror", mirror] if mirror else []),
            ]
        )
        variables["virt_lab_image_sums_url"] = f"{webserver.url(lab)}/SHA256SUMS"
    return variables


def _host_key(lab: Lab, host: Host) -> str:
    return (host.root(lab) / "etc/ssh/ssh_host_ed25519_key.pub").read_text().rsplit(" ", 1)[0]


def _yaml(path: Path, value: dict[str, Any]) -> None:
    """YAML for people, without a YAML library: every scalar and list is also valid JSON."""
    write(path, HEADER + _block(value, ""))


def _block(value: dict[str, Any], indent: str) -> str:
    text = ""
    for key, each in value.items():
        if isinstance(each, dict) and each:
            text += f"{indent}{key}:\n{_block(each, indent + '  ')}"
        else:
            text += f"{indent}{key}: {json.dumps(each)}\n"
    return text
