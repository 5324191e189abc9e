"""A port that NetworkManager configures: what moves to the bridge, what stays, and what is refused."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._host import files_links, plan_networkmanager
from ansible_collections.corral.virt.plugins.module_utils._host.model_bridge import (
    NetworkChange,
    NmProfiles,
    Profile,
    Vlan,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_networkmanager import parsed

MAC = "52:54:00:ab:34:56"
ETC, RUN = "/etc/NetworkManager/system-connections", "/run/NetworkManager/system-connections"
OFFICE = """# by hand
[connection]
id=office
uuid=6f2b
type=ethernet
interface-name=eth0
autoconnect=false
permissions=user:alice:;
autoconnect-priority=20
zone=trusted
lldp=1
timestamp=1795935231

[ethernet]
mtu=1400
cloned-mac-address=52:54:00:11:22:33

[ipv4]
method=auto
dns=192.0.2.1;
dns-search=lab.example;
routing-rule1=priority 7 from 0.0.0.0/0 iif eth0 table 254

[ipv6]
addr-gen-mode=eui64
method=auto

[proxy]
browser-only=true

[user]
note=a=b
"""
# As NetworkManager 1.42 (Debian 12) and 1.52 (Debian 13) write it for a link without a profile.
GENERATED = """[connection]
id=Wired connection 1
uuid=6cbd3112-990a-32a4-ba4d-1ee577d175d8
type=ethernet
autoconnect-priority=-999
interface-name=eth0
timestamp=1795935285

[ethernet]

[ipv4]
method=auto

[ipv6]
addr-gen-mode=default
method=auto

[proxy]

[.nmmeta]
nm-generated=true
"""


def profile(text: str, path: str = f"{ETC}/office.nmconnection", uuid: str = "6f2b") -> Profile:
    return Profile(uuid, "eth0" if uuid == "6f2b" else "", path, text)


def switch(
    text: str = OFFICE, *others: Profile, path: str = f"{ETC}/office.nmconnection", **more: t.Any
) -> NetworkChange:
    config = NmProfiles((profile(text, path), *others), "6f2b", **more)
    return plan_networkmanager.switch("eth0", "br0", MAC, config)


def written(change: NetworkChange) -> dict[str, dict[str, dict[str, str]]]:
    """What is to last, by path."""
    return {path: parsed(str(text)) for path, text in change.lasting.items()}


def test_a_profile_is_divided_between_bridge_and_port() -> None:
    change = switch(metric=100, client_id="00:aa", duid="00:04:bb", iaid="7")
    files = written(change)
    bridge, port = files[f"{ETC}/corral-br0.nmconnection"], files[f"{ETC}/office.nmconnection"]
    own = bridge["connection"]["uuid"]
    assert bridge == {
        "connection": {
            "autoconnect-priority": "20",
            "zone": "trusted",
            "id": "br0",
            "uuid": own,
            "type": "bridge",
            "interface-name": "br0",
            "autoconnect-slaves": "1",
        },
        "bridge": {"stp": "false", "forward-delay": "0"},
        "ethernet": {"cloned-mac-address": MAC, "mtu": "1400"},
        "ipv4": {
            "method": "auto",
            "dns": "192.0.2.1;",
            "dns-search": "lab.example;",
            "routing-rule1": "priority 7 from 0.0.0.0/0 iif br0 table 254",
            "dhcp-client-id": "00:aa",
            "route-metric": "100",
        },
        "ipv6": {
            "addr-gen-mode": "eui64",
            "method": "auto",
            "dhcp-duid": "00:04:bb",
            "dhcp-iaid": "7",
            "route-metric": "100",
        },
        "proxy": {"browser-only": "true"},
    }
    assert port == {
        "connection": {
            "id": "office",
            "uuid": "6f2b",
            "type": "ethernet",
            "lldp": "1",
            "timestamp": "1795935231",
            "interface-name": "eth0",
            "autoconnect-priority": "999",
            "master": own,
            "slave-type": "bridge",
        },
        "ethernet": {"mtu": "1400", "cloned-mac-address": "52:54:00:11:22:33"},
        "user": {"note": "a=b"},
    }
    assert own != "6f2b" and [*change.trial.values()] == [*change.lasting.values()], "tried as it is kept"
    assert [*change.trial] == [f"{RUN}/corral-br0.nmconnection", f"{RUN}/corral-br0-eth0.nmconnection"]
    assert change.up[-1][-2:] == ("uuid", "6f2b") and change.up_again[-1][-3:] == ("6f2b", "ifname", "eth0")


def test_a_profile_in_memory_stays_for_a_rollback_and_the_next_boot_forgets_it() -> None:
    path = f"{RUN}/Wired connection 1.nmconnection"
    change = switch(GENERATED, path=path)
    files = written(change)
    assert [*files] == [f"{ETC}/corral-br0.nmconnection", f"{ETC}/corral-br0-eth0.nmconnection"]
    port = files[f"{ETC}/corral-br0-eth0.nmconnection"]
    assert port["connection"]["id"] == "br0-eth0" and port["connection"]["uuid"] == change.up[-1][-1] != "6f2b"
    assert ".nmmeta" not in port and path not in change.trial
    assert files[f"{ETC}/corral-br0.nmconnection"]["ipv4"] == {"method": "auto"}
    assert change.up_again[-1][-3] == "6f2b"


def test_what_a_profile_leaves_out_or_sets_is_kept() -> None:
    bare = "[connection]\nid=a\ntype=802-3-ethernet\n[802-3-ethernet]\nmtu=9000\n"
    (bridge, _port) = written(switch(bare, metric=100, path=f"/usr/lib/{RUN}/a.nmconnection")).values()
    assert bridge["ipv6"] == {"method": "auto", "addr-gen-mode": "stable-privacy", "route-metric": "100"}
    assert bridge["ethernet"]["mtu"] == "9000"
    (bridge, _port) = written(switch(f"{bare}[ipv4]\nroute-metric=50\n[ipv6]\nroute-metric=-1\n", metric=7)).values()
    assert (bridge["ipv4"]["route-metric"], bridge["ipv6"]["route-metric"]) == ("50", "7")


def test_a_file_of_the_distribution_is_hidden_by_one_in_etc_and_cloud_init_is_told() -> None:
    files = written(switch(path="/usr/lib/NetworkManager/system-connections/a.nmconnection"))
    assert f"{ETC}/a.nmconnection" in files
    change = switch(path=f"{ETC}/cloud-init-eth0.nmconnection")
    assert "config: disabled" in str(change.lasting["/etc/cloud/cloud.cfg.d/99-corral-bridge.cfg"])


def test_other_profiles_of_the_port_are_not_started_at_boot() -> None:
    def other(name: str, text: str, folder: str = ETC) -> Profile:
        return profile(f"[connection]\nid={name}\n{text}", f"{folder}/{name}.nmconnection", name)

    others = (
        other("named", "type=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=auto\n"),
        other("by-mac", f"type=ethernet\n[ethernet]\nmac-address={MAC.upper()}\n"),
        other("off", "type=ethernet\ninterface-name=eth0\nautoconnect=false\n"),
        other("any", "type=ethernet\n"),
        other("vlan", f"type=vlan\ninterface-name=eth0.4\n[ethernet]\nmac-address={MAC}\n"),
        other("other", "type=ethernet\ninterface-name=eth1\n"),
        other("memory", "type=ethernet\ninterface-name=eth0\n", RUN),
        Profile("ifcfg", "", "/etc/sysconfig/network-scripts/ifcfg-eth0"),
    )
    files = written(switch(OFFICE, *others))
    switched_off = {path: text for path, text in files.items() if text["connection"].get("autoconnect") == "false"}
    assert [*switched_off] == [f"{ETC}/named.nmconnection", f"{ETC}/by-mac.nmconnection"]
    assert switched_off[f"{ETC}/named.nmconnection"] == {
        "connection": {
            "id": "named",
            "type": "ethernet",
            "interface-name": "eth0",
            "uuid": "named",
            "autoconnect": "false",
        },
        "ipv4": {"method": "auto"},
    }
    assert len(files) == 4


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        (
            "",
            "/etc/sysconfig/network-scripts/ifcfg-eth0",
            "is in /etc/.*/ifcfg-eth0, .* `nmcli connection migrate 6f2b`",
        ),
        (
            "",
            "",
            "is in no file, and so in no keyfile; run `nmcli connection clone 6f2b eth0-file && nmcli connection up",
        ),
        (
            "",
            f"{ETC}/a.nmconnection",
            "no longer in .*/a.nmconnection, .* `nmcli connection modify 6f2b connection.auto",
        ),
        (f"{OFFICE}[802-1x]\neap=tls;\n", None, "office of eth0 uses 802.1X"),
        (OFFICE.replace("type=ethernet", "type=pppoe"), None, "office of eth0 has type pppoe; choose a port"),
        (
            OFFICE.replace("note=a=b", "org.freedesktop.NetworkManager.origin=nm-initrd-generator"),
            None,
            "from the kernel command line at each boot; remove `ip=`",
        ),
    ],
)
def test_a_profile_that_cannot_move_is_refused(text: str, path: str | None, reason: str) -> None:
    with pytest.raises(Refused, match=f"^cannot create bridge br0: .*{reason}"):
        switch(text, path=f"{ETC}/office.nmconnection" if path is None else path)


def test_a_hook_that_deletes_bonds_is_refused() -> None:
    """Else the host would lose its bond while it is taken back."""
    bond = "[connection]\nid=b\nuuid=6f2b\ntype=bond\ninterface-name=bond0\n"
    for text, refused in ((bond, True), (bond.replace("type=bond", "type=ethernet"), False)):
        config = NmProfiles((Profile("6f2b", "bond0", f"{ETC}/b.nmconnection", text),), "6f2b", ifenslave=True)
        if refused:
            with pytest.raises(Refused, match=r"ifenslave deletes bond0 .*remove that package"):
                plan_networkmanager.switch("bond0", "br0", MAC, config)
        else:
            assert plan_networkmanager.switch("bond0", "br0", MAC, config)
        assert plan_networkmanager.switch("bond0", "br0", MAC, dataclasses.replace(config, ifenslave=False))


def test_another_profile_for_the_bridge_is_refused() -> None:
    other = profile("[connection]\nid=old\ntype=bridge\ninterface-name=br0\n", f"{ETC}/old.nmconnection", "77")
    with pytest.raises(
        Refused, match=r"a profile for br0 already, .* up 77` to use it, or `nmcli connection delete 77`"
    ):
        switch(OFFICE, other)


NMCLI = """6cbd3112-990a-32a4-ba4d-1ee577d175d8:eth0:{}/Wired connection 1.nmconnection
0e8a3cf9-0b63-4f8c-9b1e-52c2a4b4d1d2::{}/a\\:b.nmconnection
a4a69fd2-1bdf-42de-8463-3aee76827c9d:lo:/etc/sysconfig/network-scripts/ifcfg-lo
"""
LEASE = """DHCP4.OPTION[1]:broadcast_address = 10.86.1.255
DHCP4.OPTION[2]:dhcp_client_identifier = 01:b2:2a:b4:54:84:31
DHCP4.OPTION[7]:host_name = iaid = zz
DHCP6.OPTION[1]:dhcp6_client_id = 00:04:7e:14:9b
DHCP6.OPTION[3]:iaid = 5f:fe:62:a9
DHCP6.OPTION[4]:ip6_address = fd00::18d
"""
ROUTES = {
    "route": [{"dst": "default", "protocol": "dhcp", "metric": 5}, {"dst": "10.86.1.0/24", "protocol": "kernel", "metric": 101}],
    "-6": [{"dst": "fe80::/64", "protocol": "kernel", "metric": 1024}],
}  # fmt: skip


def test_what_networkmanager_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Debian 12 and 13 print it."""
    folder = tmp_path / "system-connections"
    folder.mkdir()
    paths = [folder / "Wired connection 1.nmconnection", folder / "a:b.nmconnection"]
    for path, text in zip(paths, (GENERATED, OFFICE), strict=True):
        path.write_text(text)
    answers = {"connection": NMCLI.format(folder, folder), "device": LEASE}
    monkeypatch.setattr(files_links, "answer", lambda *words: next(answers[one] for one in words if one in answers))
    monkeypatch.setattr(files_links, "ip", lambda *words: ROUTES[words[0]])
    found = files_links.config("networkmanager", "eth0")
    assert found == NmProfiles(
        profiles=(
            Profile("6cbd3112-990a-32a4-ba4d-1ee577d175d8", "eth0", str(paths[0]), GENERATED),
            Profile("0e8a3cf9-0b63-4f8c-9b1e-52c2a4b4d1d2", "", str(paths[1]), OFFICE),
            Profile("a4a69fd2-1bdf-42de-8463-3aee76827c9d", "lo", "/etc/sysconfig/network-scripts/ifcfg-lo"),
        ),
        active="6cbd3112-990a-32a4-ba4d-1ee577d175d8",
        metric=101,
        client_id="01:b2:2a:b4:54:84:31",
        duid="00:04:7e:14:9b",
        iaid="1610506921",
    )
    answers["device"] = ""
    without = dataclasses.replace(found, client_id="", duid="", iaid="")
    assert files_links.config("networkmanager", "eth0") == without


def test_a_vlan_is_added_and_the_profile_of_its_parent_stays() -> None:
    new = Vlan("eth0.42", 42, "eth0", "eth0")
    change = plan_networkmanager.switch_on_vlan(new, "br42", MAC, NmProfiles((profile(OFFICE),), "6f2b"))
    files = written(change)
    bridge = files[f"{ETC}/corral-br42.nmconnection"]
    vlan = files[f"{ETC}/corral-br42-eth0.42.nmconnection"]
    assert len(files) == 2 and bridge["ipv4"] == bridge["ipv6"] == {"method": "disabled"}
    assert bridge["bridge"] == {"stp": "false", "forward-delay": "0"}
    assert vlan["vlan"] == {"id": "42", "parent": "eth0", "flags": "1"}
    assert (vlan["connection"]["master"], vlan["connection"]["slave-type"]) == (bridge["connection"]["uuid"], "bridge")
    assert [*change.trial] == [path.replace(ETC, RUN) for path in files]
    assert change.up[-1][-2:] == ("uuid", vlan["connection"]["uuid"])
    for rival in ("br42", "eth0.42"):
        other = profile(f"[connection]\nid=x\ninterface-name={rival}\n", uuid="u9")
        with pytest.raises(Refused, match=f"has a profile for {rival} already, which is not up"):
            plan_networkmanager.switch_on_vlan(new, "br42", MAC, NmProfiles((profile(OFFICE), other), "6f2b"))


BOND = "[connection]\nid=office\nuuid=6f2b\ntype=bond\ninterface-name=eth0\n\n[bond]\nmode=active-backup\nmiimon=100\n"


@pytest.mark.parametrize("key", ["master", "controller"])
@pytest.mark.parametrize("named", ["eth0", "6f2b"])
def test_the_members_of_a_bond_come_up_with_it(key: str, named: str) -> None:
    member = f"[connection]\nid=m\nuuid=m1\ntype=ethernet\ninterface-name=eth7\n{key}={named}\nslave-type=bond\n"
    others = (
        Profile("m1", "eth7", f"{ETC}/m.nmconnection", member),
        Profile("m2", "", f"{ETC}/n.nmconnection", member),
    )
    change = switch(BOND, *others)
    port = written(change)[f"{ETC}/office.nmconnection"]
    assert port["bond"] == {"mode": "active-backup", "miimon": "100"}
    assert port["connection"]["autoconnect-slaves"] == "1"
    ups = [words[-1] if "ifname" not in words else words[-3] for words in change.up_again if "up" in words]
    assert ups == ["6f2b", "m1"], "those that were up, after the bond: it takes them down"
