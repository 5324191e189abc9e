"""What several files and states of Salt say of one object is what Salt leaves: merged in Salt's order, and what cannot
be the same is not written. Whatever is dropped or changed is reported with its place.
"""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.unit.plugins.plugin_utils.salt_trees import Trees


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return Trees(tmp_path)


SMALL = "[{cpu: 1}, {mem: 512}]"
MANAGED = "{network: [{type: bridge}, {ports: %s}, managed], __sls__: n}"


def rendered(trees: Trees, text: str, **options: t.Any) -> None:
    """Convert what Salt has rendered."""
    trees.convert(rendered=[str(trees.put("rendered.yml", text))], **options)


def test_a_guest_in_several_states_is_as_the_last_one_leaves_it(trees: Trees) -> None:
    found = trees.guests(
        """
        web1-def:
          virt.defined:
            - name: web1
            - cpu: 2
            - mem: 1024
            - disks: [{name: system, size: 8192}]
        web1-run:
          virt.running:
            - name: web1
            - require:
              - virt: web1-def
        db1-def:
          virt.defined: [{name: db1}, {cpu: 1}, {mem: 512}]
        db1-grown:
          virt.running: [{name: db1}, {cpu: 4}, {mem: 4096}]
        old-run:
          virt.running: [{name: old}, {cpu: 1}, {mem: 512}]
        old-off:
          virt.powered_off: [{name: old}]
        """
    )
    assert found["web1"]["state"] == "running" and found["web1"]["vcpus"] == 2
    assert found["web1"]["disks"] == [{"name": "system", "size": "8GiB"}]
    assert (found["db1"]["state"], found["db1"]["vcpus"], found["db1"]["memory"]) == ("running", 4, "4GiB")
    assert found["old"]["state"] == "destroyed"
    for key in ("cpu", "mem"):
        assert f"db1-def:virt.defined:{key}: another value comes later in Salt's order: " in trees.told


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{order: last}, ", ""),
        ("{order: 2}, ", "{order: 1}, "),
        ("", "{order: first}, "),
        ("{require: [{virt: b}]}, ", ""),
        ("{watch: [b]}, ", ""),
        ("", "{require_in: [{virt: a}]}, "),
        ("", "{prereq: [{virt: a}]}, "),
        ("{onchanges: [{virt: b}]}, {require: [{virt: a}]}, ", "{require: [{virt: nothing}]}, "),
    ],
)
def test_the_order_is_that_of_salt_and_not_that_of_the_file(trees: Trees, first: str, second: str) -> None:
    found = trees.guests(
        f"""
        a:
          virt.running: [{first}{{name: x}}, {{cpu: 4}}, {{mem: 512}}]
        b:
          virt.running: [{second}{{name: x}}, {{cpu: 1}}, {{mem: 512}}]
        """
    )
    assert found["x"]["vcpus"] == 4
    assert "b:virt.running:cpu: another value comes later in Salt's order: " in trees.told


def test_states_that_require_each_other_have_an_end(trees: Trees) -> None:
    chain = "".join(f"s{n}: {{virt.running: [{{cpu: 1}}, {{mem: 9}}, {{require: [s{n + 1}]}}]}}\n" for n in range(3000))
    trees.put("salt/a.sls", chain + "s3000: {virt.running: [{cpu: 1}, {mem: 9}, {require: [s0]}]}\n")
    assert len(trees.convert().guests) == 3001


def test_arguments_of_several_states_are_merged_by_key(trees: Trees) -> None:
    """As in the two states by which Uyuni installs a guest from its kernel."""
    found = trees.guests(
        """
        domain_first_boot_define:
          virt.running:
            - name: u1
            - cpu: 2
            - mem: 1024
            - vm_type: kvm
            - os_type: hvm
            - arch: x86_64
            - disks: [{name: system, model: virtio, source_file: null, pool: default, size: 2048}]
            - interfaces: [{name: eth0, type: network, source: default, mac: null}]
            - graphics: {type: none}
            - seed: False
            - stop_on_reboot: True
            - boot: {kernel: /tmp/virt/u1/kernel, initrd: /tmp/virt/u1/initrd, cmdline: x, efi: True}
            - require: [{virt_utils: nets}]
        nets:
          virt_utils.network_running: [{networks: [default]}]
        domain_define:
          virt.defined:
            - name: u1
            - live: False
            - stop_on_reboot: False
            - boot: {kernel: null, initrd: null, cmdline: null}
            - require: [{virt: domain_first_boot_define}]
        """
    )["u1"]
    assert "boot" not in found and found["firmware"] == "efi" and found["stop_on_reboot"] is False
    assert found["state"] == "running" and found["apply"] == "next_boot" and found["virt_type"] == "kvm"
    assert found["disks"] == [{"name": "system", "size": "2GiB", "pool": "default", "bus": "virtio"}]
    for path in ("boot:kernel", "stop_on_reboot"):
        assert f"domain_first_boot_define:virt.running:{path}: another value comes later" in trees.told
    assert "nets:virt_utils.network_running: " in trees.told


def test_a_state_is_extended_and_excluded(trees: Trees) -> None:
    trees.put("salt/a.sls", f"web1: {{virt.running: {SMALL}}}\ndb1: {{virt.running: {SMALL}}}\n")
    trees.put("salt/b.sls", "include: [a]\nextend: {web1: {virt: [{cpu: 8}]}}\nexclude: [{id: db1}]\n")
    trees.convert()
    [guest] = trees.read("group_vars/hyper/guests.yml")["virt_guests"]
    assert (guest["name"], guest["vcpus"]) == ("web1", 8) and "b.sls: exclude:db1: " in trees.told


def test_files_are_merged_in_the_order_of_the_top_file(trees: Trees) -> None:
    trees.put("salt/top.sls", "base: {'*': [z, a]}")
    trees.put("salt/a.sls", "include: [m]\nfast: {virt.pool_running: [{ptype: dir}, {target: /srv/a}]}\n")
    trees.put("salt/m.sls", "fast-m: {virt.pool_running: [{name: fast}, {ptype: dir}, {target: /srv/m}]}\n")
    trees.put("salt/z.sls", "fast-z: {virt.pool_running: [{name: fast}, {ptype: dir}, {target: /srv/z}]}\n")
    trees.put("pillar/top.sls", "base: {'*': [two, one]}")
    trees.put("pillar/one.sls", "virt: {nic: {dual: {eth1: {bridge: br1}}}, disk: {d: [{system: {size: 1024}}]}}")
    trees.put("pillar/two.sls", "virt: {nic: {dual: {eth0: {bridge: br0}}}, disk: {d: [{data: {size: 2048}}]}}")
    trees.convert()
    assert trees.settings()["storage_pools"][1]["path"] == "/srv/a"
    for place in ("m.sls: fast-m", "z.sls: fast-z"):
        assert f"{place}:virt.pool_running: another value comes later in Salt's order: " in trees.told
    assert trees.settings()["virt_nic_profiles"] == {
        "dual": [{"name": "eth0", "bridge": "br0"}, {"name": "eth1", "bridge": "br1"}]
    }
    assert trees.settings()["virt_disk_profiles"] == {"d": [{"name": "system", "size": "1GiB"}]}
    assert "two.sls: virt:disk:d: another value comes later in Salt's order: " in trees.told


def test_pillars_of_one_hypervisor_stay_with_it(trees: Trees) -> None:
    trees.put("pillar/top.sls", "base: {'*': [all], hyper2: [two]}")
    trees.put("pillar/all.sls", "virt: {images: /srv/all, disk: {d: [{system: {size: 1024}}]}}")
    trees.put("pillar/two.sls", "virt: {images: /srv/two, disk: {d: [{system: {size: 2048}}]}}")
    trees.put("salt/top.sls", "base: {hyper1: [one], hyper2: [two]}")
    for host, name in (("one", "a"), ("two", "b")):
        trees.put(f"salt/{host}.sls", f"{name}: {{virt.running: [{{cpu: 1}}, {{mem: 9}}, {{disk: default}}]}}")
    trees.convert()
    guests = {one["name"]: one for one in trees.read("group_vars/hyper/guests.yml")["virt_guests"]}
    assert {name: one["disks"][0]["pool"] for name, one in guests.items()} == {"a": "srv-all", "b": "srv-two"}
    assert trees.settings()["virt_disk_profiles"]["d"][0]["size"] == "1GiB"
    assert trees.read("host_vars/hyper2.yml")["virt_disk_profiles"]["d"] == [
        {"name": "system", "size": "2GiB", "pool": "srv-two"}
    ]
    assert {one["name"]: one["path"] for one in trees.settings()["storage_pools"]} == {
        "default": "/var/lib/libvirt/images",
        "srv-all": "/srv/all",
        "srv-two": "/srv/two",
    }
    assert "another value" not in trees.told


def test_the_configuration_of_a_minion_hides_pillars(trees: Trees) -> None:
    trees.put("pillar/v.sls", "virt: {nic: {a: {eth0: {bridge: br1}}}, disk: {d: [{system: {size: 1024}}]}}")
    trees.convert(minion=str(trees.put("minion", "virt: {nic: {b: {eth0: {bridge: br2}}}}\n")))
    assert list(trees.settings()["virt_nic_profiles"]) == ["b"] and "d" in trees.settings()["virt_disk_profiles"]
    assert "v.sls: virt:nic: the configuration of the minion comes before pillars: " in trees.told


def test_guests_of_one_name_on_two_hypervisors_are_two(trees: Trees) -> None:
    rendered(
        trees,
        """
        hyper1: {web1: {virt: [{cpu: 1}, {mem: 512}, running], __sls__: g}}
        hyper2: {web1: {virt: [{cpu: 2}, {mem: 512}, running], __sls__: g}}
        """,
    )
    [guest] = trees.read("group_vars/hyper/guests.yml")["virt_guests"]
    assert (guest["host"], guest["vcpus"]) == ("hyper1", 1)
    assert "(hyper2): web1:virt.running: the guest web1 is not written: another hypervisor has" in trees.told


def test_several_bridges_are_written_with_their_ports_and_br0_first(trees: Trees) -> None:
    ports = {"brsan": "eth2.40", "br0": "eth0", "br1": "eth1"}
    rendered(trees, "hyper1:\n" + "".join(f"  {name}: {MANAGED % port}\n" for name, port in ports.items()))
    assert trees.read("host_vars/hyper1.yml") == {
        "virt_bridges": [{"name": name, "port": ports[name]} for name in ("br0", "brsan", "br1")]
    }
    assert "is not written" not in trees.told


def test_of_several_bridges_one_that_the_role_makes_otherwise_is_reported(trees: Trees) -> None:
    ports = {"br0": "eth0 eth1", "br1": "eth2.100", "br2": '""'}
    rendered(trees, "hyper1:\n" + "".join(f"  {name}: {MANAGED % port}\n" for name, port in ports.items()))
    assert trees.read("host_vars/hyper1.yml") == {"virt_bridges": [{"name": "br1", "port": "eth2.100"}]}
    assert "br0:network.managed:ports: the bridge br0 is not written: the role bridge takes one port" in trees.told
    assert "br2:network.managed: the bridge br2 is not written: it has no port" in trees.told


@pytest.mark.parametrize(
    "bridges",
    [
        {"br0": "eth0 eth1", "br1": "[eth2, eth3]"},
        {"br0": "[eth0, eth1]"},
        {"br0": "eth0}, {mtu: 9000"},
    ],
)
def test_a_bridge_that_the_role_makes_otherwise_is_not_written(trees: Trees, bridges: dict[str, str]) -> None:
    rendered(trees, "hyper1:\n" + "".join(f"  {name}: {MANAGED % port}\n" for name, port in bridges.items()))
    assert "host_vars/hyper1.yml" not in trees.result.files
    for name in bridges:
        assert f"the bridge {name} is not written: " in trees.told


def test_ports_are_told_by_the_bridge_and_by_the_interface(trees: Trees) -> None:
    rendered(
        trees,
        """
        hyper1:
          br0: {network: [{type: bridge}, {ports: eth0}, {proto: dhcp}, managed], __sls__: n}
          eth0: {network: [{type: eth}, {bridge: br0}, managed], __sls__: n}
        hyper2:
          br0: {network: [{type: bridge}, managed], __sls__: n}
          eth0: {network: [{type: eth}, {bridge: br0}, managed], __sls__: n}
          eth1: {network: [{type: eth}, {bridge: br0}, managed], __sls__: n}
        """,
    )
    assert trees.read("host_vars/hyper1.yml") == {"bridge_name": "br0", "bridge_port": "eth0"}
    assert "host_vars/hyper2.yml" not in trees.result.files and "these are eth0, eth1" in trees.told


def test_what_a_minion_did_not_render_is_shown(trees: Trees) -> None:
    rendered(
        trees,
        """
        hyper1: {vm.swappiness: {sysctl: [{value: 0}, present], __sls__: n},
                 hugepages: {bootloader: [{value: 512}, kernel_param], __sls__: n}}
        hyper2: "Minion did not return. [No response]"
        hyper3: ["Rendering SLS 'base:vms' failed: boom"]
        """,
    )
    assert "hyper2: nothing is known of it, because Salt printed: Minion did not return." in trees.told
    assert "hyper3: nothing is known of it, because Salt printed: Rendering SLS 'base:vms' failed: boom" in trees.told
    assert "hugepages:bootloader.kernel_param: set the kernel's parameter in tuning_kernel_arguments" in trees.told
    assert "(hyper1): 1 not about virtualization: sysctl.present 1" in trees.told and "swappiness" not in trees.told


ARTICLE = """
kvmhostkey: {ssh_auth.present: [{user: root}, {source: salt://kvm/id_rsa.pub}]}
vm.swappiness: {sysctl.present: [{value: 0}]}
net.bridge.bridge-nf-call-arptables: {sysctl.present: [{value: 0}, {require: [{pkg: kvm-packages}]}]}
/hugepages: {mount.mounted: [{device: hugetlbfs}, {fstype: hugetlbfs}, {mkmnt: True}]}
grub-settings:
  file.append:
    - name: /etc/default/grub
    - text: 'GRUB_CMDLINE_LINUX_DEFAULT="console=ttyS0,9600n8 console=tty0 transparent_hugepage=always"'
motd: {file.append: [{name: /etc/motd}, {text: hello}]}
"""


def test_the_host_states_of_the_article_are_variables_of_the_role_tuning(trees: Trees) -> None:
    trees.put("salt/kvm/init.sls", ARTICLE)
    trees.convert()
    assert trees.settings() == {
        "tuning_sysctl": {"vm.swappiness": 0, "net.bridge.bridge-nf-call-arptables": 0},
        "tuning_kernel_arguments": ["console=ttyS0,9600n8", "console=tty0", "transparent_hugepage=always"],
    }
    assert "/hugepages:mount.mounted: huge pages go to tuning_hugepages" in trees.told
    assert "kvmhostkey:ssh_auth.present: tuning_ssh_keys makes a key" in trees.told
    assert "remove these lines from /etc/default/grub" in trees.told and "motd" not in trees.told


def test_settings_of_other_machines_stay_with_them(trees: Trees) -> None:
    rendered(
        trees,
        """
        hyper1: {vm.swappiness: {sysctl: [{value: 0}, present], __sls__: n}}
        www1: {vm.swappiness: {sysctl: [{value: 90}, present], __sls__: n}}
        """,
        hypervisors=["hyper1"],
    )
    assert trees.read("host_vars/hyper1.yml") == {"tuning_sysctl": {"vm.swappiness": 0}}
    assert "www1" not in trees.result.files["hosts.yml"]


@pytest.mark.parametrize(
    "text",
    [
        "web1: {virt.running: [%s, {vm_type: xen}]}",
        "web1: {virt.running: [%s, {arch: aarch64}]}",
        "web1: {virt.running: [%s, {os_type: xen}]}",
        "web1: {virt.running: [%s, {connection: 'esx://10.1.1.1'}]}",
        "web1: {virt.running: [%s, {interfaces: [{name: eth0, type: hostdev}]}]}",
        "web1: {virt.running: [%s, {interfaces: [{name: eth0, type: mcast, source: x}]}]}",
        "web1: {virt.running: [%s, {disks: [{name: a, backing_store_path: /srv/base.qcow2}]}]}",
        "web1: {virt.running: [%s, {boot: {kernel: 'https://x/k'}}]}",
        "x: {module.run: [{name: virt.init}, {m_name: web1}, %s, {hypervisor: esxi}]}",
    ],
)
def test_a_guest_that_would_be_another_is_not_written(trees: Trees, text: str) -> None:
    assert trees.guests(text % "{cpu: 1}, {mem: 512}") == {}
    assert "the guest web1 is not written: " in trees.told


@pytest.mark.parametrize(
    "pillar",
    [
        "virt: {connection: {uri: 'xen:///'}}",
        "virt.connect: esx://10.1.1.1",
        "libvirt: {hypervisor: esxi, connection: esx01}",
        "{hypervisor: Xen, default_pool_enabled: false}",
    ],
)
def test_guests_of_another_hypervisor_are_not_written(trees: Trees, pillar: str) -> None:
    trees.put("pillar/top.sls", "base: {hyper2: [xen]}")
    trees.put("pillar/xen.sls", pillar)
    trees.put("salt/top.sls", "base: {hyper1: [one], hyper2: [two]}")
    trees.put("salt/one.sls", f"a: {{virt.running: {SMALL}}}")
    trees.put("salt/two.sls", f"b: {{virt.running: {SMALL}}}")
    assert trees.convert().guests == ["a"] and "the guest b is not written: its hypervisor is " in trees.told


def test_a_card_of_the_host_is_the_same_card(trees: Trees) -> None:
    nics = "{name: a, type: hostdev, source: '0000:65:00.1'}, {name: b, type: hostdev, source: pci_0000_65_00_2}"
    found = trees.guests(f"a: {{virt.running: [{{cpu: 1}}, {{mem: 512}}, {{interfaces: [{nics}]}}]}}")
    assert found["a"]["interfaces"] == [
        {"name": "a", "type": "hostdev", "address": "0000:65:00.1"},
        {"name": "b", "type": "hostdev", "address": "0000:65:00.2"},
    ]


@pytest.mark.parametrize("mode", ["0770", "'0770'", "770", "'770'", "'0o770'"])
def test_the_digits_of_a_mode_are_octal(trees: Trees, mode: str) -> None:
    trees.put(
        "salt/p.sls",
        f"""
        p1:
          virt.pool_running:
            - ptype: dir
            - target: /srv/p1
            - permissions:
              - mode: {mode}
              - owner: 1000
              - group: 0100
        """,
    )
    trees.convert()
    pool = trees.settings()["storage_pools"][1]
    assert (pool["mode"], pool["owner"], pool["group"]) == ("0770", "1000", "100")


def test_no_mode_is_made_up(trees: Trees) -> None:
    trees.put("salt/p.sls", "p1: {virt.pool_running: [{target: /srv/p1}, {permissions: {mode: 0890}}]}")
    trees.convert()
    assert "mode" not in trees.settings()["storage_pools"][1] and "p1:virt.pool_running:permissions:mode" in trees.told


def test_an_unquoted_mac_address_is_one(trees: Trees) -> None:
    nics = "[{name: a, mac: 52:54:00:12:34:56}]"
    found = trees.guests(f"a: {{virt.running: [{{cpu: 1}}, {{mem: 0512}}, {{interfaces: {nics}}}]}}")
    assert found["a"]["interfaces"][0]["mac"] == "52:54:00:12:34:56" and found["a"]["memory"] == "512MiB"


def test_an_interface_beside_a_profile_keeps_the_bridge_of_the_profile(trees: Trees) -> None:
    trees.put(
        "pillar/virt.sls", "virt: {images: /a, nic: {n: {e0: {bridge: br7}}}, disk: {d: [{s: {size: 1, pool: p}}]}}"
    )
    found = trees.guests(
        """
        a: {virt.running: [{cpu: 1}, {mem: 9}, {nic_profile: n}, {disk_profile: d},
            {interfaces: [{name: e0, mac: "52:54:00:00:00:01"}]}, {disks: [{name: s, size: 2}]}]}
        b: {virt.running: [{cpu: 1}, {mem: 9}, {nic_profile: n}, {interfaces: [{name: e0, network: lab}]}]}
        """
    )
    assert found["a"]["nic_profile"] == "n" and found["a"]["disks"] == [{"name": "s", "size": "2MiB"}]
    assert found["a"]["interfaces"] == [{"name": "e0", "mac": "52:54:00:00:00:01"}]
    assert "nic_profile" not in found["b"] and found["b"]["interfaces"] == [{"name": "e0", "network": "lab"}]


def test_networks_and_pools_of_the_formula_below_lookup(trees: Trees) -> None:
    trees.put(
        "pillar/libvirt.sls",
        """
        libvirt:
          lookup:
            networks:
              default: {ensure: absent}
              mynet:
                xml: |
                  <network><name>mynet</name><bridge name="virbr7"/><forward/>
                  <ip address="192.168.130.1" netmask="255.255.255.0">
                  <dhcp><range start="192.168.130.2" end="192.168.130.9"/></dhcp></ip></network>
              ovs:
                autostart: false
                xml: |
                  <network><name>ovs</name><forward mode="bridge"/><bridge name="ovsbr0"/><virtualport type="openvswitch">
                  <parameters interfaceid="09b11c53-8b5c-4eeb-8f00-d84eaa0aaa4f"/></virtualport></network>
              broken: {xml: <network>}
            pools:
              virtimages:
                type: dir
                path: /srv/virtimages
                xml: <pool type="dir"><name>virtimages</name><target><path>/srv/virtimages</path></target></pool>
              old: {ensure: absent, type: dir, path: /srv/old}
              san: {type: iscsi, path: /dev/disk}
        """,
    )
    trees.convert()
    default, mynet, ovs = trees.settings()["virt_networks"]
    assert default == {"name": "default", "state": "absent"}
    assert (mynet["state"], mynet["mode"], mynet["bridge"]) == ("active", "nat", "virbr7")
    ranges = [{"start": "192.168.130.2", "end": "192.168.130.9"}]
    assert mynet["ips"] == [{"address": "192.168.130.1", "prefix": 24, "dhcp": {"ranges": ranges}}]
    assert (ovs["mode"], ovs["virtualport"], ovs["autostart"]) == ("bridge", "openvswitch", False)
    assert "xml" not in mynet and 'parameters interfaceid="09b11c53-8b5c-4eeb-8f00-d84eaa0aaa4f"' in ovs["xml"]
    assert trees.settings()["storage_pools"][1:] == [
        {"name": "virtimages", "path": "/srv/virtimages"},
        {"name": "old", "state": "absent"},
    ]
    for path in ("networks:broken:xml", "pools:san"):
        assert f"libvirt:lookup:{path}: " in trees.told


def test_the_control_pillar_is_what_its_states_make(trees: Trees) -> None:
    trees.put(
        "pillar/infra.sls",
        """
        _param: {nets: &ip4 [{id: ip4, type: ipv4, link: ens2}]}
        virt:
          disk:
            three: [{system: {size: 4096, image: ubuntu.qcow}}, {snap: {size: 8192, image: snapshot.qcow}}, {cinder: {size: 2048}}]
          nic:
            control:
            - {name: nic01, bridge: br-pxe, model: virtio}
            - {name: nic05, bridge: br-prv, model: virtio, virtualport: {type: openvswitch}}
        salt:
          minion: {enabled: true}
          control:
            enabled: true
            virt_enabled: true
            size:
              medium: {cpu: 2, ram: 4096}
              medium3: {cpu: 2, ram: 4096, disk_profile: three, net_profile: control}
              tiny: {cpu: 1, ram: 1}
            cluster:
              infra:
                domain: virt.example.net
                engine: virt
                cloud_init: {user_data: {timezone: UTC, password: geheim}}
                node:
                  ub1: {provider: node01, image: ubuntu.qcow, size: medium, img_dest: /srv/ssd, machine: virt-2.11, cpu_mode: host-passthrough}
                  ub2: {provider: node02, image: ubuntu.qcow, size: tiny, autostart: false,
                        loader: {readonly: yes, type: pflash, path: /usr/share/AAVMF/AAVMF_CODE.fd}}
                  ub3:
                    provider: node03
                    image: other.qcow
                    size: medium3
                    img_dest: /srv/ssd
                    mac: {nic01: "52:54:00:00:00:01"}
                    cloud_init: {network_data: {networks: [{<<: *ip4, ip_address: 192.168.0.161}]}}
                    rng: {backend: /dev/urandom, model: random, rate: {period: '1800', bytes: '1500'}}
        """,
    )
    trees.convert()
    ub1, ub2, ub3 = trees.read("group_vars/hyper/guests.yml")["virt_guests"]
    assert ub1["disks"] == [
        {"name": "system", "size": "8GiB", "pool": "srv-ssd", "image": "ubuntu.qcow2", "clone": "copy"}
    ]
    assert ub1["interfaces"] == [{"name": "eth0", "bridge": "br0"}] and ub1["autostart"] is True
    assert (ub1["machine"], ub1["cpu"], ub1["host"]) == ("virt-2.11", {"mode": "host-passthrough"}, "node01")
    assert ub2["loader"] == {"path": "/usr/share/AAVMF/AAVMF_CODE.fd", "type": "pflash", "readonly": True}
    assert ub2["memory"] == "1MiB" and ub2["autostart"] is False
    assert ub3["rng"] == {
        "model": "virtio",
        "backend": "random",
        "source": "/dev/urandom",
        "rate_bytes": 1500,
        "rate_period_ms": 1800,
    }
    assert (ub3["disk_profile"], ub3["nic_profile"]) == ("three", "control")
    assert ub3["disks"] == [{"name": name, "pool": "srv-ssd"} for name in ("system", "snap", "cinder")]
    assert ub3["interfaces"] == [{"name": "nic01", "mac": "52:54:00:00:00:01"}]
    images = {(one["name"], one.get("pool")) for one in trees.settings()["virt_images"]}
    assert images >= {("ubuntu.qcow2", "srv-ssd"), ("snapshot.qcow2", "srv-ssd"), ("ubuntu.qcow2", None)}
    for path in ("ub1:cloud_init", "ub3:cloud_init", "ub3:image"):
        assert f"salt:control:cluster:infra:node:{path}: " in trees.told
    assert "2 not about virtualization: _param 1, minion 1" in trees.told
    assert "geheim" not in "".join(trees.result.files.values())


ARTICLE_CLUSTER = """
cluster-packages:
  pkg.installed:
    - pkgs: [corosync, clvm, pacemaker, cman, fence-agents]
/etc/cluster/cluster.conf:
  file.managed: [{source: "salt://cluster/cluster.conf.jinja"}, {template: jinja}, {mode: 444}, {require: [{pkg: cman}]}]
/etc/corosync/corosync.conf:
  file.managed: [{source: "salt://cluster/corosync.conf.jinja"}, {template: jinja}, {mode: 444}]
/etc/init.d/clvm:
  file.managed: [{user: root}, {group: root}, {mode: 555}, {source: "salt://cluster/clvm"}, {require: [{pkg: clvm}]}]
cman:
  service.running: [{enable: True}, {watch: [{file: /etc/corosync/corosync.conf}]}, {require: [{pkg: cman}]}]
clvm:
  service.running: [{enable: True}, {require: [{service: cman}]}]
"""


def test_each_line_of_the_cluster_of_the_article_is_told(trees: Trees) -> None:
    trees.put("salt/cluster/init.sls", ARTICLE_CLUSTER)
    trees.convert(hypervisors=["hyper1", "hyper2"])
    why = {note.path: note.why for note in trees.result.notes}
    for path, words in {
        "cluster-packages:pkg.installed:pkgs:corosync": "the role cluster installs",
        "cluster-packages:pkg.installed:pkgs:pacemaker": "the role cluster installs",
        "cluster-packages:pkg.installed:pkgs:fence-agents": "cluster_fencing",
        "cluster-packages:pkg.installed:pkgs:cman": "cman does not exist any more",
        "cluster-packages:pkg.installed:pkgs:clvm": "no role sets up lvmlockd and dlm",
        "/etc/cluster/cluster.conf:file.managed": "each fencedevice",
        "/etc/corosync/corosync.conf:file.managed": "set cluster_name, cluster_links",
        "/etc/init.d/clvm:file.managed": "clvmd does not exist any more",
        "cman:service.running": "cman does not exist any more",
        "clvm:service.running": "clvmd does not exist any more",
    }.items():
        assert words in why[path], (path, why)
    assert not any(key.startswith("cluster") for key in trees.settings()), "nothing to convert: no file is read"


def test_a_cluster_that_salt_makes_by_pcs_is_variables_of_the_role_cluster(trees: Trees) -> None:
    trees.put(
        "salt/c.sls",
        """
        tools: {pkg.installed: [{pkgs: [pcs, fence-agents-ipmilan: 4.2.1, gfs2-utils, htop]}]}
        setup: {pcs.cluster_setup: [{nodes: [hyper1, hyper2, web9]}, {pcsclustername: rack1}, {extra_args: [--start]}]}
        auth: {pcs.auth: [{nodes: [hyper1]}, {pcsuser: hacluster}, {pcspasswd: geheim}]}
        quorum: {pcs.prop_has_value: [{prop: no-quorum-policy}, {value: freeze}, {cibname: c}]}
        "on": {pcs.prop_has_value: [{prop: stonith-enabled}, {value: false}]}
        lazy: {pcs.prop_has_value: [{prop: no-quorum-policy}, {value: ignore}]}
        wait: {pcs.prop_has_value: [{prop: stop-all-resources}, {value: false}]}
        fence1:
          pcs.stonith_present:
          - {stonith_id: eps1}
          - {stonith_device_type: fence_ipmilan}
          - stonith_device_options: [pcmk_host_list=hyper1, ipaddr=192.0.2.7, login=admin, passwd=geheim, lanplus=1]
        fence2:
          pcs.stonith_present:
          - {stonith_device_type: fence_apc}
          - stonith_device_options: ["pcmk_host_map=hyper2:01;web9:02", ipaddr=pdu]
        fence3: {pcs.stonith_present: [{stonith_device_type: fence_apc}, {stonith_device_options: [ipaddr=pdu]}]}
        vm: {pcs.resource_present: [{resource_type: "ocf:heartbeat:VirtualDomain"}, {resource_options: [config=/vm/web1.xml]}]}
        lock: {pcs.resource_present: [{resource_type: "ocf:pacemaker:controld"}]}
        web: {pcs.constraint_present: [{constraint_type: colocation}, {constraint_options: [add, a, with, b]}]}
        /vm: {mount.mounted: [{device: /dev/vg/vm}, {fstype: gfs2}]}
        libvirt-guests: {service.dead: [{enable: false}]}
        """,
    )
    trees.convert(hypervisors=["hyper1", "hyper2"])
    settings = {key: value for key, value in trees.settings().items() if key.startswith("cluster")}
    assert settings == {
        "cluster_packages": ["pcs", "fence-agents-ipmilan"],
        "cluster_name": "rack1",
        "cluster_hosts": ["hyper1", "hyper2", "web9"],
        "cluster_properties": {"no-quorum-policy": "freeze", "stop-all-resources": "false"},
    }
    one, two = (trees.read(f"host_vars/hyper{number}.yml")["cluster_fencing"] for number in (1, 2))
    options = {"ip": "192.0.2.7", "username": "admin", "lanplus": "1", "password": "{{ vault_eps1_password }}"}
    assert one == {"agent": "fence_ipmilan", "options": options}
    assert two == {"agent": "fence_apc", "options": {"ip": "pdu", "plug": "01"}}
    for words in (
        "web9 is no hypervisor of the inventory; set there: cluster_fencing",
        "fence3 does not name its hosts (pcmk_host_list)",
        "on:pcs.prop_has_value:value: stonith-enabled is always true",
        "lazy:pcs.prop_has_value:value: stonith-enabled is always true, and no-quorum-policy is not ignore",
        "tools:pkg.installed:pkgs:gfs2-utils: no role makes or mounts",
        "tools:pkg.installed:pkgs: add to hypervisor_extra_packages what the roles do not install: htop",
        "list it in cluster_guests",
        "lock:pcs.resource_present:resource_type: clvmd does not exist any more",
        "rules of guests are their ha",
        "/vm:mount.mounted: no role makes or mounts",
        "libvirt-guests:service.dead: tuning_libvirt_guests sets it",
        "auth:pcs.auth: the role cluster configures Pacemaker",
        "setup:pcs.cluster_setup:extra_args: the role cluster asks Pacemaker itself",
        "set vault_eps1_password (ansible-vault)",
    ):
        assert words in trees.told, (words, trees.told)
    assert "geheim" not in trees.told + "".join(trees.result.files.values())


def test_a_cluster_of_other_machines_is_only_counted(trees: Trees) -> None:
    trees.put("salt/top.sls", "base: {web9: [c]}")
    trees.put("salt/c.sls", "corosync: {service.running: []}")
    trees.convert(hypervisors=["hyper1"])
    assert "1 not about virtualization: service.running 1" in trees.told


def test_the_formula_of_uyuni(trees: Trees) -> None:
    trees.put(
        "pillar/host.sls",
        """
        hypervisor: KVM
        default_pool_enabled: true
        default_pool: {path: /srv/vms}
        default_net_enabled: true
        default_net:
          mode: NAT
          bridge: br0
          ipv4: {gateway: 192.168.122.1, prefix: 24, dhcp_start: 192.168.122.2, dhcp_end: 192.168.122.9}
          ipv6: {gateway: null}
        tuning: {disable_ksm: true}
        org_id: 1
        """,
    )
    trees.convert()
    assert trees.settings()["storage_pools"] == [{"name": "default", "path": "/srv/vms"}]
    ranges = [{"start": "192.168.122.2", "end": "192.168.122.9"}]
    assert trees.settings()["virt_networks"] == [
        {
            "name": "default",
            "state": "active",
            "mode": "nat",
            "ips": [{"address": "192.168.122.1", "prefix": 24, "dhcp": {"ranges": ranges}}],
        }
    ]
    assert "host.sls: tuning:disable_ksm: " in trees.told and "1 not about virtualization: org_id 1" in trees.told


@pytest.mark.parametrize("kind", ["netfs", "fs", "logical", "disk", "iscsi", "rbd", "gluster", "zfs"])
def test_a_pool_of_another_type_needs_somebody(trees: Trees, kind: str) -> None:
    trees.put("salt/p.sls", f"san: {{virt.pool_running: [{{ptype: {kind}}}, {{target: /srv/san}}]}}")
    trees.convert()
    assert "storage_pools" not in trees.settings()
    assert f"san:virt.pool_running:ptype: a pool of type {kind} is not made" in trees.told


def test_several_roots_are_one_tree(trees: Trees) -> None:
    """Of two files with one path, the one of the first root is read."""
    trees.put("one/top.sls", "base: {hyper1: [guests, more]}")
    trees.put("one/guests.sls", f"a: {{virt.running: {SMALL}}}")
    trees.put("two/guests.sls", f"b: {{virt.running: {SMALL}}}")
    trees.put("two/more.sls", "c: {virt.running: [{cpu: 1}, {mem: 9}, {disks: [{name: s, image: salt://i.img}]}]}")
    trees.put("two/i.img", b"")
    trees.convert(salt_root=[str(trees.place / "one"), str(trees.place / "two")])
    assert trees.result.guests == ["a", "c"] and "two/guests.sls: not read: " in trees.told
    assert trees.settings()["virt_images"][0]["src"] == str(trees.place / "two/i.img")
    assert trees.read("hosts.yml")["all"]["children"]["hyper"]["hosts"] == {"hyper1": {}}


@pytest.mark.parametrize(
    "text",
    [
        "hyper1: {web1: {virt: [{cpu: 1}, {mem: 512}, running, {order: 10000}], __sls__: g, __env__: base}}",
        "hyper1: [{state: virt, fun: running, __id__: web1, name: web1, cpu: 1, mem: 512, order: 10000, __sls__: g}]",
        '{"hyper1": {"web1": {"virt": [{"cpu": 1}, {"mem": 512}, "running"], "__sls__": "g"}}}',
    ],
)
def test_all_that_salt_prints_of_states_is_read(trees: Trees, text: str) -> None:
    rendered(trees, text)
    [guest] = trees.read("group_vars/hyper/guests.yml")["virt_guests"]
    assert (guest["name"], guest["vcpus"], guest["host"]) == ("web1", 1, "hyper1")


def test_the_report_is_sorted(trees: Trees) -> None:
    trees.put("pillar/p.sls", "virt: {nic: {dual: {eth0: {bridge: br0}}}}\napache: {port: 80}\n")
    trees.guests(
        f"""
        web1: {{virt.running: {SMALL}}}
        xen1: {{virt.running: [{{cpu: 1}}, {{mem: 9}}, {{vm_type: xen}}]}}
        vim: {{pkg.installed: []}}
        motd: {{file.managed: [{{contents: hello}}]}}
        issue: {{file.managed: [{{contents: hello}}]}}
        """
    )
    report = trees.result.files["from_salt.txt"]
    titles = [line for line in report.splitlines() if line.endswith(":") and not line.startswith("-")]
    assert titles == [
        "Converted from Salt:",
        "Not converted or changed, or yet to be done, with its place:",
        "Not about virtualization:",
    ]
    parts = [part.strip().split("\n\n")[-1] for part in report.split(":\n\n")]
    assert "- guests: 1 (web1)" in report.split(titles[1])[0] and "xen1" in report.split(titles[1])[1]
    assert "guests.sls: 3 not about virtualization: file.managed 2, pkg.installed 1" in parts[-1]
    assert "p.sls: 1 not about virtualization: apache 1" in parts[-1] and "motd" not in report


def test_a_directory_is_one_pool(trees: Trees) -> None:
    """Two pools in one directory are refused."""
    trees.put("pillar/virt.sls", "virt: {images: /kvm/vms/, disk: {d: [{system: {size: 1024}}]}}")
    found = trees.guests(
        """
        vms: {virt.pool_running: [{ptype: dir}, {target: /kvm/vms}]}
        other: {virt.pool_running: [{ptype: dir}, {target: /var/lib/libvirt/images}]}
        a: {virt.running: [{cpu: 1}, {mem: 9}, {disks: [{name: s, size: 9}, {name: t, size: 9, pool: san}]}]}
        """
    )
    assert {one["name"]: one["path"] for one in trees.settings()["storage_pools"]} == {
        "vms": "/kvm/vms",
        "other": "/var/lib/libvirt/images",
    }
    assert found["a"]["disks"][0]["pool"] == "vms"
    assert trees.settings()["virt_disk_profiles"]["d"][0]["pool"] == "vms"
    assert "a: its hypervisor needs the pool san, which is not written" in trees.told


def test_files_that_only_salt_renders_are_counted_unless_they_are_about_virtualization(trees: Trees) -> None:
    for name in ("apache", "ntp/init"):
        trees.put(f"salt/{name}.sls", "{% set x = 1 %}\na: {pkg.installed: []}\n")
    trees.put("salt/guests.sls", "{% set x = 1 %}\na: {virt.running: []}\n")
    trees.convert()
    assert "guests.sls: not read: line 1 has Jinja" in trees.told and trees.told.count("-e rendered=FILE") == 1
    assert (
        "2 not read that only Salt can render, and that do not mention virtualization: apache.sls, ntp/init"
        in trees.told
    )


def test_pillars_of_others_are_counted_unless_they_are_about_virtualization(trees: Trees) -> None:
    trees.put("pillar/a.sls", "apache: {port: 80}\nsalt: {master: {workers: 1}}\nvms: [{name: x}]\n")
    trees.put("pillar/b.sls", "apache: {port: 81}\nsalt: {master: {workers: 2}}\ninfra: {kvm_topdir: /kvm}\n")
    trees.convert()
    for place in ("a.sls: vms", "b.sls: infra"):
        assert f"{place}: what its states make of it is not known; render them" in trees.told
    assert "port" not in trees.told and "workers" not in trees.told and "not about virtualization: " in trees.told


def test_settings_of_the_daemon_and_of_its_driver(trees: Trees) -> None:
    trees.put(
        "pillar/libvirt.sls",
        """
        libvirt:
          libvirtd: {max_clients: 128, unix_sock_rw_perms: 0770, auth_unix_rw: none}
          qemu: {security_driver: apparmor, vnc_tls: 1}
          server: {unix_sock_group: libvirtd, enabled: true}
          libvirt: {uri_default: "qemu:///system"}
          guests: {on_boot: ignore}
        """,
    )
    trees.convert()
    assert trees.settings()["hypervisor_libvirtd_conf"] == {
        "max_clients": 128,
        "unix_sock_rw_perms": "0770",
        "auth_unix_rw": "none",
        "unix_sock_group": "libvirtd",
    }
    assert trees.settings()["hypervisor_qemu_conf"] == {"security_driver": "apparmor"}
    for path in ("qemu:vnc_tls", "server:enabled", "libvirt", "guests"):
        assert f"libvirt:{path}: " in trees.told


def test_a_state_by_its_older_module_is_the_same(trees: Trees) -> None:
    """As Uyuni calls functions, and in one that is not about virtualization."""
    trees.guests(
        """
        undo: {mgrcompat.module_run: [{name: virt.undefine}, {vm_: x}]}
        new: {module.run: [{virt.set_autostart: [{vm_: x}]}]}
        other: {module.run: [{name: saltutil.sync_all}]}
        """
    )
    for path in ("undo:mgrcompat.module_run", "new:module.run:virt.set_autostart"):
        assert f"{path}: a function is not a state" in trees.told
    assert "1 not about virtualization: module.run 1" in trees.told


def test_what_all_get_after_one_is_for_that_one_too(trees: Trees) -> None:
    trees.put("salt/top.sls", "base: {hyper1: [one], 'L@hyper1,hyper2': [both], '*': [all]}")
    trees.put("salt/one.sls", "fast: {virt.pool_running: [{ptype: dir}, {target: /srv/one}]}")
    trees.put("salt/all.sls", "x: {virt.pool_running: [{name: fast}, {ptype: dir}, {target: /srv/all}]}")
    trees.convert(hypervisors=["hyper1", "hyper2"])
    assert trees.settings()["storage_pools"][1]["path"] == "/srv/all"
    assert "/srv/one" not in "".join(trees.result.files.values())
    assert "one.sls: fast:virt.pool_running: another value comes later in Salt's order: " in trees.told
