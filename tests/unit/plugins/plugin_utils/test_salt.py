"""What Salt Virt has in its files, as an inventory: the same guests, nothing dropped silently, nothing executed."""

from __future__ import annotations

import os
import time
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.template import trust_as_template

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import GUEST_OPTIONS
from ansible_collections.corral.virt.plugins.plugin_utils._guests.variable_files import untagged, written
from ansible_collections.corral.virt.plugins.plugin_utils._salt import salt_inventory, salt_sources, salt_yaml
from ansible_collections.corral.virt.tests.unit.plugins.plugin_utils.salt_trees import Trees


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return Trees(tmp_path)


SMALL = "\n    - cpu: 1\n    - mem: 512\n"


def test_a_guest_is_the_same(trees: Trees) -> None:
    trees.put("salt/images/centos.qcow2", b"")
    found = trees.guests(
        """
        web1:
          virt.running:
            - cpu: 2
            - mem: 1536
            - disks:
              - name: system
                size: 8192
                image: salt://images/centos.qcow2
                overlay_image: True
              - {name: data, size: 500, model: scsi, format: raw}
              - {name: dvd, device: cdrom, source_file: /srv/iso/a.iso, model: sata}
            - interfaces:
              - {name: eth0, type: network, source: office, mac: "AC:DE:48:00:00:01"}
              - {name: eth1}
            - graphics: {type: vnc, port: 5901, listen: {type: address, address: 127.0.0.1}}
            - autostart: True
            - stop_on_reboot: True
            - live: False
        """
    )
    assert found["web1"] == {
        "name": "web1",
        "state": "running",
        "vcpus": 2,
        "memory": "1536MiB",
        "disks": [
            {"name": "system", "size": "8GiB", "image": "centos.qcow2"},
            {"name": "data", "size": "500MiB", "format": "raw", "bus": "scsi"},
            {"name": "dvd", "device": "cdrom", "source": "/srv/iso/a.iso", "bus": "sata"},
        ],
        "interfaces": [
            {"name": "eth0", "network": "office", "mac": "ac:de:48:00:00:01"},
            {"name": "eth1", "bridge": "br0"},
        ],
        "graphics": {"type": "vnc", "port": 5901, "listen": "127.0.0.1"},
        "autostart": True,
        "stop_on_reboot": True,
        "apply": "next_boot",
    }
    assert trees.settings()["virt_images"] == [
        {"name": "centos.qcow2", "src": str(trees.place / "salt/images/centos.qcow2")}
    ]
    assert trees.told == "hosts.yml: name the hypervisors: -e hypervisors=... (minions in the top files: none)"


def test_processors_memory_and_machine_are_the_same(trees: Trees) -> None:
    found = trees.guests(
        """
        big:
          virt.defined:
            - cpu:
                maximum: 8
                current: 4
                cpuset: 0-7
                placement: static
                topology: {sockets: 2, cores: 2, threads: 2}
                mode: custom
                model: {name: Skylake-Server, fallback: forbid}
                features: {vmx: require}
                cache: {mode: passthrough}
                iothreads: 2
                numa:
                  0: {cpus: 0-3, memory: 1g, distances: {0: 10, 1: 20}}
                  1: {cpus: 4-7, memory: 1g, memAccess: shared}
                tuning: {shares: 512, period: 100000, vcpupin: {0: 1}, emulatorpin: 2-3, cachetune: {}}
            - mem: {boot: 2g, current: 1g, max: 4g, slots: 4, hugepages: [{size: 2m}], locked: True, hard_limit: 8gb}
            - boot: {efi: True, kernel: /k, initrd: /i, cmdline: a=b}
            - boot_dev: network hd
            - numatune: {memory: {mode: strict, nodeset: 0-1}, memnodes: {0: {mode: strict, nodeset: 1}}}
            - hypervisor_features: {kvm-hint-dedicated: True}
            - clock: {timezone: CET, timers: {rtc: {track: wall, tickpolicy: catchup, slew: 1}}}
            - host_devices: [pci_0000_65_00_0, usb_1_2]
            - serials: [{type: pty}, {type: tcp, port: 4000}]
        """
    )["big"]
    assert found["vcpus"] == {
        "placement": "static",
        "cpuset": "0-7",
        "current": 4,
        "maximum": 8,
        "iothreads": 2,
        "topology": {"sockets": 2, "cores": 2, "threads": 2},
        "shares": 512,
        "emulator_cpuset": "2-3",
        "period_us": 100000,
        "pinning": [{"vcpu": 0, "cpuset": "1"}],
    }
    assert found["cpu"] == {
        "mode": "custom",
        "model": "Skylake-Server",
        "fallback": "forbid",
        "cache": {"mode": "passthrough"},
        "features": [{"name": "vmx", "policy": "require"}],
    }
    assert found["memory"] == {
        "maximum": "2GiB",
        "hotplug_maximum": "4GiB",
        "current": "1GiB",
        "hard_limit": "7812500KiB",
        "slots": 4,
        "locked": True,
        "hugepages": True,
        "hugepage_size": "2MiB",
    }
    assert found["numa"]["cells"][0] == {
        "id": 0,
        "cpus": "0-3",
        "memory": "1GiB",
        "distances": [{"id": 0, "value": 10}, {"id": 1, "value": 20}],
    }
    assert found["numa"]["nodeset"] == "0-1" and found["numa"]["nodes"] == [
        {"cell": 0, "mode": "strict", "nodeset": "1"}
    ]
    assert found["firmware"] == "efi" and found["features"] == {"kvm_hint_dedicated": True}
    assert found["boot"] == {"kernel": "/k", "initrd": "/i", "cmdline": "a=b", "order": ["network", "hd"]}
    assert found["clock"]["timezone"] == "CET" and found["clock"]["timers"] == [
        {"name": "rtc", "track": "wall", "tickpolicy": "catchup"}
    ]
    assert found["hostdevs"] == [
        {"name": "pci_0000_65_00_0", "type": "pci", "address": "0000:65:00.0", "managed": True}
    ]
    assert found["serials"] == [
        {"port": 0, "type": "pty"},
        {"port": 1, "type": "tcp", "mode": "bind", "host": "127.0.0.1", "service": 4000, "protocol": "telnet"},
    ]
    for path in ("cpu:tuning:cachetune", "clock:timers:rtc:slew", "host_devices: usb_1_2"):
        assert f"big:virt.defined:{path}" in trees.told
    assert found["state"] == "present" and found["disks"] == [] and found["interfaces"] == []


def test_every_guest_passes_the_check_of_virt_domain(trees: Trees) -> None:
    """What it refuses is listed, and the others are written."""
    found = trees.guests(
        f"""
        web1:
          virt.running:{SMALL.replace("    -", "            -")}
        bad name/:
          virt.running:{SMALL.replace("    -", "            -")}
        huge:
          virt.running:
            - cpu: 2
            - mem: 512
            - boot_dev: tape
        half:
          virt.running: [{{cpu: 1}}]
        """
    )
    assert list(found) == ["web1"]
    for result in found.values():
        assert not ArgumentSpecValidator({**GUEST_OPTIONS, "host": {}}).validate(dict(result)).error_messages
    for name in ("bad name/", "huge"):
        assert f"{name}:virt.running: the guest {name} is not written: " in trees.told
    assert "the guest half is not written: memory is missing" in trees.told


@pytest.mark.parametrize(
    ("mem", "memory"),
    [
        ("512", "512MiB"),
        ("2g", "2GiB"),
        ("1.5g", "1536MiB"),
        ("2GB", "1953125KiB"),
        ("1048576k", "1GiB"),
        ("'64'", "64MiB"),
    ],
)
def test_a_number_without_a_unit_is_mebibytes(trees: Trees, mem: str, memory: str) -> None:
    found = trees.guests(f"a:\n  virt.running:\n    - cpu: 1\n    - mem: {mem}\n")
    assert found["a"]["memory"] == memory


@pytest.mark.parametrize(
    "text",
    [
        "web1:\n  virt.running:" + SMALL,
        "web1:\n  virt:\n    - running" + SMALL,
        "anything:\n  virt.running:\n    - name: web1" + SMALL,
        "anything:\n  virt.running:\n    - names: [web1]" + SMALL,
        "anything:\n  virt.running:\n    - names:\n      - web1:\n        - cpu: 1\n    - mem: 512\n",
        "x:\n  module.run:\n    - virt.init:\n      - name: web1\n      - cpu: 1\n      - mem: 512\n",
        "x:\n  module.run:\n    - name: virt.init\n    - m_name: web1\n    - cpu: 1\n    - kwargs: {mem: 512}\n",
    ],
)
def test_a_state_has_many_forms(trees: Trees, text: str) -> None:
    found = trees.guests(text)
    assert found["web1"]["vcpus"] == 1 and found["web1"]["memory"] == "512MiB"


PROFILES = (
    "virt: {nic: {dual: {eth0: {bridge: br1}, eth1: {network: lab}}}, disk: {two: [{system: {size: 4096}}, {data: {size: 100}}]}}",
    "virt: {nic: {dual: [{eth0: {bridge: br1}}, {eth1: {network: lab}}]}, disk: {two: [{name: system, size: 4096}, {name: data, size: 100}]}}",
    "virt.nic: {dual: {eth0: {bridge: br1}, eth1: {network: lab}}}\nvirt.disk: {two: [{system: {size: 4096}}, {data: {size: 100}}]}",
    "virt.nic: {dual: {eth0: {bridge: br1}, eth1: {network: lab}}}\nvirt.disk:\n  two:\n    - system:\n      size: 4096\n    - data:\n      size: 100",
)


@pytest.mark.parametrize("profiles", PROFILES)
def test_profiles_have_many_forms(trees: Trees, profiles: str) -> None:
    trees.put("pillar/virt.sls", profiles)
    found = trees.guests("a:\n  virt.running:\n    - disk_profile: two\n    - nic_profile: dual" + SMALL)
    assert found["a"] == {
        "name": "a",
        "state": "running",
        "vcpus": 1,
        "memory": "512MiB",
        "disk_profile": "two",
        "nic_profile": "dual",
    }
    assert trees.settings()["virt_nic_profiles"] == {
        "dual": [{"name": "eth0", "bridge": "br1"}, {"name": "eth1", "network": "lab"}]
    }
    assert trees.settings()["virt_disk_profiles"] == {
        "two": [{"name": "system", "size": "4GiB"}, {"name": "data", "size": "100MiB"}]
    }


@pytest.mark.parametrize(
    ("disks", "machine"),
    [
        ("- disks: [{name: install, device: cdrom, model: ide, source_file: /srv/a.iso}]", "pc"),
        ("- disk_profile: old", "pc"),
        ("- disks: [{name: system, size: 8192, model: virtio}]", None),
        ("- machine: pc-i440fx-7.2\n    - disk_profile: old", "pc-i440fx-7.2"),
    ],
)
def test_a_guest_with_ide_keeps_a_machine_that_has_it(trees: Trees, disks: str, machine: str | None) -> None:
    trees.put("pillar/virt.sls", "virt: {disk: {old: [{system: {size: 4096, model: ide}}]}}")
    found = trees.guests(f"a:\n  virt.running:\n    {disks}" + SMALL)
    assert found["a"].get("machine") == machine


def test_a_profile_that_is_not_there_is_that_of_salt(trees: Trees) -> None:
    trees.put("pillar/virt.sls", "virt: {images: /srv/vms}")
    found = trees.guests("a:\n  virt.running:\n    - disk_profile: none\n    - nic_profile: default" + SMALL)
    assert found["a"]["disks"] == [{"name": "system", "size": "8GiB", "pool": "srv-vms"}]
    assert found["a"]["interfaces"] == [{"name": "eth0", "bridge": "br0"}] and "disk_profile" not in found["a"]
    assert "a:virt.running:disk_profile: there is no profile none" in trees.told and "nic_profile" not in trees.told


def test_the_formula_of_the_tutorial(trees: Trees) -> None:
    trees.put(
        "salt/kvm/init.sls",
        """
        libvirt:
          pkg.installed: []
          file.managed:
            - name: /etc/sysconfig/libvirtd
            - contents: 'LIBVIRTD_ARGS="--listen"'
            - require:
              - pkg: libvirt
          virt.keys:
            - expiration_days: 90
          service.running:
            - name: libvirtd
            - watch:
              - file: libvirt
        eth0:
          network.managed: {enabled: True, type: eth, bridge: br0}
        br0:
          network.managed:
            - type: bridge
            - proto: dhcp
        more_keys:
          libvirt.keys
        """,
    )
    trees.put("pillar/virt.sls", "virt: {tunnel: True, images: /srv/salt-images/}")
    trees.convert(hypervisors=["hyper1"])
    assert trees.read("hosts.yml") == {"all": {"children": {"hyper": {"hosts": {"hyper1": {}}}}}}
    assert trees.settings() == {
        "pki_days": 90,
        "bridge_name": "br0",
        "bridge_port": "eth0",
        "storage_pools": [
            {"name": "default", "path": "/var/lib/libvirt/images"},
            {"name": "srv-salt-images", "path": "/srv/salt-images"},
        ],
    }
    for path in ("libvirt:pkg.installed", "libvirt:file.managed", "libvirt:service.running", "virt:tunnel"):
        assert f"{path}: " in trees.told


def test_networks_and_pools(trees: Trees) -> None:
    trees.put(
        "salt/net.sls",
        """
        lab:
          virt.network_running:
            - bridge: virbr7
            - forward: nat
            - mtu: 1400
            - domain: {name: lab.example.org, localOnly: True}
            - nat: {port: {start: 1000, end: 2000}}
            - ipv4_config:
                cidr: 192.168.42.0/24
                dhcp_ranges: [{start: 192.168.42.10, end: 192.168.42.25}]
                hosts: [{ip: 192.168.42.5, mac: "52:54:00:46:4d:9e", name: db}]
            - dns:
                forwarders: [{addr: 192.0.2.1}, {domain: x.example.org}]
                hosts: {192.168.42.5: [db, db.lab]}
            - autostart: False
        ovs:
          virt.network_defined: [{bridge: ovsbr0}, {forward: bridge}, {vport: openvswitch}, {tag: 42}]
        broken:
          virt.network_defined: [{bridge: x}, {forward: nowhere}]
        fast:
          virt.pool_running: [{ptype: dir}, {target: /srv/fast}, {permissions: {mode: "0711", owner: root, label: x}}]
        san:
          virt.pool_running: [{ptype: iscsi}, {target: /dev/disk}, {source: {auth: {username: u, password: geheim}}}]
        old:
          virt.pool_deleted: [{purge: True}]
        """,
    )
    trees.convert()
    lab, ovs = trees.settings()["virt_networks"]
    assert lab["ips"] == [
        {
            "address": "192.168.42.1",
            "prefix": 24,
            "dhcp": {
                "ranges": [{"start": "192.168.42.10", "end": "192.168.42.25"}],
                "hosts": [{"ip": "192.168.42.5", "mac": "52:54:00:46:4d:9e", "name": "db"}],
            },
        }
    ]
    assert lab["nat"] == {"port_start": 1000, "port_end": 2000} and lab["autostart"] is False
    assert lab["dns"]["hosts"] == [{"ip": "192.168.42.5", "hostnames": ["db", "db.lab"]}]
    assert (ovs["state"], ovs["mode"], ovs["virtualport"], ovs["vlan"]) == ("present", "bridge", "openvswitch", [42])
    assert [pool["name"] for pool in trees.settings()["storage_pools"]] == ["default", "fast", "old"]
    assert trees.settings()["storage_pools"][1] == {
        "name": "fast",
        "path": "/srv/fast",
        "state": "active",
        "mode": "0711",
        "owner": "root",
    }
    assert "the network broken is not written" in trees.told and "san:virt.pool_running:ptype: " in trees.told
    assert "geheim" not in "".join(trees.result.files.values()) + trees.told


def test_secrets_are_variables_of_the_vault(trees: Trees) -> None:
    found = trees.guests(
        """
        a:
          virt.running:
            - cpu: 1
            - mem: 512
            - graphics: {type: vnc, passwd: geheim1}
            - connection: qemu+ssh://x/system
            - username: u
            - password: geheim2
            - priv_key: geheim3
        """
    )
    assert found["a"]["graphics"] == {"type": "vnc", "password": "{{ vault_a_graphics_password }}"}
    assert "geheim" not in "".join(trees.result.files.values()) + trees.told
    assert "- vault_a_graphics_password\n" in trees.result.files["from_salt.txt"]
    for key in ("password", "username", "connection", "priv_key"):
        assert f"a:virt.running:{key}: " in trees.told


def test_no_text_of_salt_is_a_template(trees: Trees) -> None:
    rendered = trees.put(
        "high.yml",
        """
        hyper1:
          a:
            virt: [{cpu: 1}, {mem: 512}, {boot: {kernel: /k, cmdline: "{{ lookup('pipe', 'touch /tmp/evil') }}"}}, running]
            __sls__: guests
        """,
    )
    trees.convert(rendered=[str(rendered)])
    text = trees.result.files["group_vars/hyper/guests.yml"]
    assert "cmdline: !unsafe \"{{ lookup('pipe', 'touch /tmp/evil') }}\"" in text


def test_what_a_top_file_says_goes_to_the_host(trees: Trees) -> None:
    trees.put(
        "salt/top.sls",
        "base: {'*': [kvm], hyper1: [one], 'L@hyper1,hyper2': [both], 'G@x:y': [grain], 'hyper*': [glob]}",
    )
    trees.put("salt/kvm/init.sls", "k: virt.keys\n")
    trees.put("salt/one.sls", "include: [more.deep.low]\na:\n  virt.running:" + SMALL)
    trees.put("salt/more/deep/low.sls", "include: [..pool]\n")  # one dot is its folder, two the one above
    trees.put("salt/more/pool.sls", "fast:\n  virt.pool_running: [{ptype: dir}, {target: /srv/fast}]\n")
    trees.put("salt/both.sls", "b:\n  virt.running:" + SMALL)
    trees.put("salt/grain.sls", "c:\n  virt.running:" + SMALL)
    trees.put("salt/glob.sls", "br1:\n  network.managed: {type: bridge}\n")
    trees.put("salt/lost.sls", "d:\n  virt.running:" + SMALL)
    trees.put("pillar/top.sls", "base: {hyper2: [h2]}")
    trees.put("pillar/h2.sls", "virt: {nic: {dual: {eth0: {bridge: br1}}}}")
    found = trees.convert()
    guests = {one["name"]: one.get("host") for one in trees.read("group_vars/hyper/guests.yml")["virt_guests"]}
    assert guests == {"a": "hyper1", "b": None, "c": None}
    assert list(trees.read("hosts.yml")["all"]["children"]["hyper"]["hosts"]) == ["hyper1", "hyper2"]
    assert trees.read("host_vars/hyper1.yml") == {
        "bridge_name": "br1",
        "storage_pools": [
            {"name": "default", "path": "/var/lib/libvirt/images"},
            {"name": "fast", "path": "/srv/fast", "state": "active"},
        ],
    }
    assert "virt_nic_profiles" in trees.read("host_vars/hyper2.yml")
    for result in (
        "hyper1, hyper2 each had a guest b",
        "lost.sls: top.sls gives it to no minion",
        "G@x:y: which minions",
    ):
        assert result in trees.told
    assert found.guests == ["a", "b", "c"]


def test_a_top_file_that_cannot_be_read_is_said(trees: Trees) -> None:
    trees.put("salt/top.sls", "base: {'*': [{{ pillar.x }}]}")
    trees.put("salt/guests.sls", "a:\n  virt.running:" + SMALL)
    assert trees.convert().guests == ["a"]
    assert "salt/top.sls: every file is taken for all hypervisors" in trees.told


def test_what_salt_has_rendered_is_read_by_minion(trees: Trees) -> None:
    states = trees.put(
        "high.yml",
        """
        hyper1:
          web1:
            virt: [{cpu: 1}, {mem: 512}, {nic_profile: dual}, running, {order: 10000}]
            __sls__: guests
            __env__: base
        hyper2: Minion did not return
        """,
    )
    pillars = trees.put("pillars.yml", "hyper1: {virt: {nic: {dual: {eth0: {bridge: br1}}}}}\n")
    trees.convert(rendered=[str(states), str(pillars)])
    [guest] = trees.read("group_vars/hyper/guests.yml")["virt_guests"]
    assert guest["host"] == "hyper1" and guest["nic_profile"] == "dual"
    assert "hyper2: nothing is known of it, because Salt printed: Minion did not return" in trees.told


def test_the_control_pillar_of_the_formula(trees: Trees) -> None:
    trees.put(
        "pillar/control.sls",
        """
        salt:
          minion: {enabled: true}
          control:
            enabled: true
            size:
              medium: {cpu: 2, ram: 4096, net_profile: dual}
            cluster:
              infra:
                domain: example.org
                engine: virt
                seed: cloud-init
                enable_vnc: true
                node:
                  ctl01: {provider: hyper1.example.org, image: ubuntu.qcow, size: medium, img_dest: /srv/ssd, rng: {a: b}}
                  ctl02: {provider: hyper2.example.org, image: ubuntu.qcow, size: nosuch}
              clouds: {engine: cloud, node: {x: {}}}
        virt: {nic: {dual: {eth0: {bridge: br1}}}}
        """,
    )
    trees.convert()
    [guest] = trees.read("group_vars/hyper/guests.yml")["virt_guests"]
    assert guest == {
        "name": "ctl01.example.org",
        "state": "running",
        "vcpus": 2,
        "memory": "4GiB",
        "rng": {"model": "virtio", "backend": "random", "source": "/dev/urandom"},
        "disks": [{"name": "system", "size": "8GiB", "pool": "srv-ssd", "image": "ubuntu.qcow2", "clone": "copy"}],
        "nic_profile": "dual",
        "graphics": {"type": "vnc"},
        "autostart": True,
        "host": "hyper1.example.org",
    }
    for result in ("ctl01:rng:a: ", "ctl02:size: ", "clouds:engine: ", "1 not about virtualization: minion 1"):
        assert result in trees.told


def test_pools_and_the_daemon_of_the_formulas(trees: Trees) -> None:
    trees.put(
        "pillar/libvirt.sls",
        """
        libvirt:
          libvirtd: {listen_tcp: 1, unix_sock_group: libvirt, max_clients: 50, "a b": 1}
          server:
            pool:
              images: {type: dir, path: /srv/images, xml: <pool/>}
              old: {ensure: absent, type: dir}
              san: {type: logical}
            network: {default: {ensure: absent}}
          tofs: {a: b}
        """,
    )
    trees.convert()
    assert trees.settings()["hypervisor_libvirtd_conf"] == {"unix_sock_group": "libvirt", "max_clients": 50}
    assert trees.settings()["storage_pools"][1:] == [
        {"name": "images", "path": "/srv/images"},
        {"name": "old", "state": "absent"},
    ]
    assert trees.settings()["virt_networks"] == [{"name": "default", "state": "absent"}]
    for path in ("libvirtd:listen_tcp", "libvirtd:a b", "server:pool:san", "tofs"):
        assert f"libvirt:{path}: " in trees.told


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("/srv/a.qcow2", {"name": "a.qcow2", "src": "/srv/a.qcow2", "remote_src": True}),
        ("salt://none.img", {"name": "none.img", "src": "none.img"}),
        ("salt://../../etc/passwd.raw", {"name": "passwd.raw", "src": "passwd.raw"}),
        ("https://x.example.org/a.qcow2", {"name": "a.qcow2", "url": "https://x.example.org/a.qcow2"}),
        *(
            (url, {"name": "a.qcow2", "url": "{{ vault_url_a_qcow2_cda93738 }}"})
            for url in ("https://u:geheim@x.example.org/a.qcow2", "https://x.example.org/a.qcow2?token=geheim")
        ),
    ],
)
def test_images_come_from_where_they_are(trees: Trees, image: str, expected: dict[str, t.Any]) -> None:
    trees.guests(f"a:\n  virt.running:\n    - image: {image}{SMALL}")
    [found] = trees.settings()["virt_images"]
    assert {key: value for key, value in found.items() if key != "checksum"} == expected
    assert ("checksum" in found) == ("url" in expected)
    assert "geheim" not in "".join(trees.result.files.values()) + trees.told
    assert ("- vault_url_" in trees.result.files["from_salt.txt"]) == ("geheim" in image)


def test_two_images_of_one_name_are_two(trees: Trees) -> None:
    found = trees.guests(
        f"a:\n  virt.running:\n    - image: /x/a.qcow2{SMALL}b:\n  virt.running:\n    - image: /y/a.qcow2{SMALL}"
    )
    names = [image["name"] for image in trees.settings()["virt_images"]]
    assert len(set(names)) == 2 and [guest["disks"][0]["image"] for guest in found.values()] == names


def test_what_is_not_a_state_of_salt_virt_is_listed(trees: Trees) -> None:
    trees.guests(
        """
        a: {cmd.run: [{name: "rm -rf /"}]}
        b: 7
        c: {virt: [{x: 1}]}
        d: {virt.stopped: []}
        e: {virt.migrated: []}
        extend: {z: {cmd.run: []}}
        f: {module.run: [{name: virt.migrate}]}
        """
    )
    for result in (
        "guests.sls: 2 not about virtualization: cmd.run 1, no state 1",
        "c: it is not a state",
        "corral.virt.shutdown -e guest=d",
        "e:virt.migrated: ",
        "extend:z: there is no such state",
        "f:module.run: ",
    ):
        assert result in trees.told


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{this}: &{this} [{', '.join(['*' + before] * 9)}]" for before, this in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {x1: 1, x2: 2}\n" + "\n".join(
    f"{this}: &{this}\n  <<: [{', '.join(['*' + before] * 30)}]\n  {this}: 1"
    for before, this in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = [
    (b"a: !!python/object/apply:os.system ['touch /tmp/evil']", "could not determine a constructor"),
    (b"a: !unknown x", "could not determine a constructor"),
    (BOMB.encode(), "its aliases stand for too many values"),
    (MERGES.encode(), "it merges too many keys"),
    (b"a: &a [*a]", "it is nested too deeply"),
    (b"[" * 100_000, "it is nested too deeply"),
    (b"a: {{ salt['cmd.run']('touch /tmp/evil; virsh list') }}", "line 1 has Jinja, which only Salt can render"),
    (b"libvirt: 1\n{% set x = 1 %}", "line 2 has Jinja"),
    (b"#!py\ndef run(): return {'virt.running': 1}", "the renderer py runs code"),
    (b"#!jinja|json\n{}  # kvm", "the renderer jinja|json runs code"),
    (b"#! /usr/bin/python\n# qemu", "the renderer /usr/bin/python runs code"),
    (b"a: \xff\xfe", "byte 3 is not UTF-8"),
    (b"a: \0", "it contains NUL bytes"),
    (b"a: \x07", "it is not YAML: "),
    (b"[" + b"x, " * 300_000 + b"]", "it has more than 200000 values"),
    (b"a: 1\na: 2", "line 2: the key 'a' is there twice"),
    (b"a: 1\n---\nb: 2", "but found another document"),
    (b"- a", "it holds no mapping"),
    (b"just text", "it holds no mapping"),
    (b"a: [", "line "),
    (b"\tb: 1", "line 1: "),
    (b"a: " + b"9" * 5000, "a value cannot be read"),
    (b"a: 2026-99-99", "a value cannot be read"),
    (b"a: !!binary aGk=", "a value is bytes"),
    (b"? {a: 1}\n: 2", "unhashable key"),
    (b"#" * (salt_yaml.LARGEST_BYTES + 1), "it is larger than 2 MiB"),
]


@pytest.mark.parametrize(("data", "why"), HOSTILE, ids=[why[:40] for _data, why in HOSTILE])
def test_a_hostile_file_is_one_line_of_the_report(trees: Trees, data: bytes, why: str) -> None:
    trees.put("salt/evil.sls", data)
    started = time.monotonic()
    found = trees.guests("a:\n  virt.running:" + SMALL)
    assert time.monotonic() - started < 20
    assert list(found) == ["a"]
    [line] = [note for note in map(str, trees.result.notes) if "evil.sls" in note]
    assert "evil.sls: not read: " in line and why in line
    assert not Path("/tmp/evil").exists()


@pytest.mark.parametrize(
    "data", [b"", b"# nothing\n", b"#!yaml\n", b"\xef\xbb\xbf", b"1: 2\n", b"null: x\n", b"a:\n", b"virt: 7\n"]
)
def test_an_odd_file_is_no_error(trees: Trees, data: bytes) -> None:
    for tree in ("salt", "pillar"):
        trees.put(f"{tree}/odd.sls", data)
    trees.convert()


ODD: list[t.Any] = [
    None,
    7,
    1.5,
    True,
    "x",
    [],
    {},
    [1],
    ["x"],
    [[1]],
    [{"a": 1}],
    {"a": 1},
    {"a": {"b": 1}},
    [None],
    {"name": 1},
]
KEYS = [
    "cpu",
    "mem",
    "disks",
    "interfaces",
    "graphics",
    "serials",
    "consoles",
    "boot",
    "boot_dev",
    "numatune",
    "hypervisor_features",
    "clock",
    "host_devices",
    "autostart",
    "seed",
    "image",
    "disk_profile",
    "nic_profile",
    "vm_type",
    "enable_vnc",
    "serial_type",
    "names",
    "bridge",
    "forward",
    "ipv4_config",
    "dns",
    "nat",
    "domain",
    "tag",
    "vport",
    "interfaces",
    "permissions",
    "target",
    "ptype",
    "source",
    "purge",
]


@pytest.mark.parametrize("function", ["virt.running", "virt.network_running", "virt.pool_running", "virt.pool_deleted"])
@pytest.mark.parametrize("odd", ODD, ids=map(str, range(len(ODD))))
def test_a_value_of_another_kind_is_no_traceback(function: str, odd: t.Any) -> None:
    for key in KEYS:
        data = {"a": {function: [{"cpu": 1}, {"mem": 512}, {key: odd}]}}
        salt_inventory.convert([salt_inventory.SaltSource("x.sls", "states", data)], [], [], [], lambda _path: None)


@pytest.mark.parametrize("odd", ODD, ids=map(str, range(len(ODD))))
def test_an_order_of_another_kind_is_no_traceback(odd: t.Any) -> None:
    web = {"virt.running": [{"cpu": 1}, {"mem": 512}]}
    shapes = [
        *({"a": web, key: odd} for key in ("extend", "exclude", "include")),
        *({"a": web, "extend": {key: odd}} for key in ("a", "b")),
        {"a": web, "extend": {"a": {"virt": odd}}, "exclude": [odd, {"id": odd}]},
        *(
            {"a": {"virt.running": [{key: odd}]}, "b": web}
            for key in ("order", "require", "require_in", "prereq", "name")
        ),
        *({"a": web, "b": {"virt.running": [{"name": "a"}, {key: odd}]}} for key in KEYS),
        {"a": {"network.managed": [{"type": "bridge"}, {"ports": odd}, {"mtu": odd}, {"bridge": odd}]}},
        {"a": {"mgrcompat.module_run": odd}, "b": {"module.run": [{"virt.init": odd}]}},
    ]
    for shape in shapes:
        salt_inventory.convert([salt_inventory.SaltSource("x.sls", "states", shape)], [], [], [], lambda _path: None)
    for low in (
        [odd],
        [{"state": odd, "fun": odd, "__id__": odd}],
        [{"state": "virt", "fun": "running", "__id__": "a", "cpu": odd}],
    ):
        salt_inventory.convert([salt_inventory.SaltSource("x.sls", "low", low)], [], [], [], lambda _path: None)


@pytest.mark.parametrize("odd", ODD, ids=map(str, range(len(ODD))))
def test_pillars_of_other_kinds_are_merged_without_traceback(odd: t.Any) -> None:
    pillars = [{"virt": {"disk": {"p": [{"s": {"size": 1}}]}, "nic": {"p": {"e": {"bridge": "b"}}}}}]
    for other in (
        {"virt": odd},
        {"virt": {"disk": odd}},
        {"virt": {"nic": {"p": odd}}},
        {"virt.disk": odd},
        {"salt": odd},
    ):
        for kinds in (("pillar", "pillar"), ("pillar", "minion"), ("minion", "pillar")):
            for order in ([*pillars, other], [other, *pillars]):
                sources = [
                    salt_inventory.SaltSource(f"{n}.sls", kind, data)
                    for n, (kind, data) in enumerate(zip(kinds, order, strict=True))
                ]
                salt_inventory.convert(sources, [], [], [], lambda _path: None)


@pytest.mark.parametrize("odd", ODD, ids=map(str, range(len(ODD))))
def test_a_pillar_of_another_kind_is_no_traceback(odd: t.Any) -> None:
    shapes = [
        {"virt": odd},
        *({"virt": {key: odd}} for key in ("disk", "nic", "images", "connection", "tunnel")),
        *({"virt": {key: {"p": odd}}} for key in ("disk", "nic")),
        *({"virt": {key: {"p": [odd]}}} for key in ("disk", "nic")),
        {"libvirt": odd},
        {"libvirt": {"server": odd, "libvirtd": odd}},
        {"libvirt": {"server": {"pool": odd, "network": odd}}},
        {"libvirt": {"qemu": odd, "lookup": {"pools": {"p": odd}, "networks": {"n": odd}}}},
        *(
            {
                "libvirt": {
                    "lookup": {"pools": {"p": {"type": "dir", "path": "/p", key: odd}}, "networks": {"n": {key: odd}}}
                }
            }
            for key in ("xml", "ensure", "autostart", "path")
        ),
        *(
            {"default_pool_enabled": True, "default_net_enabled": True, key: odd}
            for key in ("default_pool", "default_net")
        ),
        *({"default_net_enabled": True, "default_net": {key: odd}} for key in ("mode", "ipv4", "bridge")),
        {"tuning": odd, "hypervisor": odd, "default_net_enabled": odd},
        {"salt": odd},
        {"salt": {"control": odd}},
        {"salt": {"control": {"size": odd, "cluster": odd}}},
        {"salt": {"control": {"cluster": {"c": {"node": odd}}, "size": {"s": odd}}}},
    ]
    for shape in shapes:
        salt_inventory.convert([salt_inventory.SaltSource("x.sls", "pillar", shape)], [], [], [], lambda _path: None)


def test_nothing_outside_of_the_tree_is_read(trees: Trees) -> None:
    secret = trees.put("secret.sls", "a:\n  virt.running:" + SMALL)
    trees.put("salt/inside.sls", "b:\n  virt.running:" + SMALL)
    root = trees.place / "salt"
    (root / "out.sls").symlink_to(secret)
    (root / "loop").symlink_to(root)
    (root / "loop.sls").symlink_to(root / "loop.sls")
    (root / "gone.sls").symlink_to(root / "none")
    os.mkfifo(root / "pipe.sls")
    trees.convert()
    assert trees.result.guests == ["b"]
    for name in ("out.sls", "loop", "loop.sls", "gone.sls", "pipe.sls"):
        assert any(str(note).startswith(f"{root}/{name}: not read: ") for note in trees.result.notes), name


def test_options_of_ansible_are_plain_texts(trees: Trees) -> None:
    """A host of an expression has Ansible's tags, which no YAML can hold."""
    tagged = trust_as_template("hyper1")
    trees.put("salt/a.sls", "a:\n  virt.running:" + SMALL)
    with pytest.raises(yaml.representer.RepresenterError):
        written({"hosts": tagged})
    trees.convert(**untagged({"hypervisors": [tagged]}))
    assert trees.read("hosts.yml")["all"]["children"]["hyper"]["hosts"] == {"hyper1": {}}


def test_a_minion_is_no_path(trees: Trees) -> None:
    rendered = trees.put("high.yml", "../../../evil: {a: {virt: [{cpu: 1}, {mem: 512}, running], __sls__: x}}\n")
    trees.convert(rendered=[str(rendered)])
    assert all(".." not in path for path in trees.result.files) and "is not the name of a host" in trees.told
    with pytest.raises(BadInput, match="not the name of a host"):
        salt_sources.Trees([], [], ["../x"])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "nothing to convert"),
        ({"salt_root": ["/nonexistent"]}, "/nonexistent: there is no such directory"),
        ({"rendered": ["/nonexistent"]}, "cannot read /nonexistent: No such file or directory"),
        ({"minion": "/dev/null"}, "cannot read /dev/null: it is not a file"),
    ],
)
def test_what_cannot_be_converted_is_refused(trees: Trees, options: dict[str, t.Any], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        trees.convert(**options)


def test_the_settings_of_a_minion(trees: Trees) -> None:
    minion = trees.put(
        "minion",
        "master: salt\nid: x\nvirt.images: /srv/a\nvirt:\n  connection: {uri: 'qemu:///session', auth: {password: geheim}}\n",
    )
    trees.convert(minion=str(minion))
    assert trees.settings()["virt_uri"] == "qemu:///session"
    assert {"name": "srv-a", "path": "/srv/a"} in trees.settings()["storage_pools"]
    assert "2 not about virtualization: settings of Salt 2" in trees.told and "geheim" not in trees.told


@pytest.mark.parametrize(
    "uri", ["esx://10.1.1.101/?no_verify=1", "lxc:///", "bhyve:///system", "qemu+tls://u:geheim@h/system"]
)
@pytest.mark.parametrize("form", ["virt: {{connection: {{uri: '{uri}'}}}}\n", "virt.connect: '{uri}'\n"])
def test_another_hypervisor_than_qemu_is_listed(trees: Trees, uri: str, form: str) -> None:
    trees.put("pillar/virt.sls", form.format(uri=uri))
    trees.convert()
    assert "virt_uri:" not in "".join(trees.result.files.values())
    assert ("which alone is supported" in trees.told) != ("no login of libvirt is written" in trees.told)
    assert "geheim" not in trees.told


def test_a_dataset_of_zfs_is_no_pool(trees: Trees) -> None:
    trees.put("pillar/virt.sls", "virt:\n  images: tank/images\n")
    found = trees.guests(f"a:\n  virt.running:\n    - disks: [{{name: b, size: 9, pool: tank/vm}}]{SMALL}")
    assert found["a"]["disks"] == [{"name": "b", "size": "9MiB"}]
    assert "storage_pools" not in trees.settings()
    for path in ("virt:images: tank/images is not a directory", "disks[0]:pool: tank/vm is not a directory"):
        assert path in trees.told
