"""What cloud-init is told."""

from __future__ import annotations

import email
import json
import re
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._seed import plan_seed

V2 = {
    "version": 2,
    "ethernets": {"eth0": {"addresses": ["192.0.2.7/24", {"2001:db8::7/64": {"label": "x"}}]}},
    "bonds": None,
}
V1 = {
    "version": 1,
    "config": [{"type": "physical", "subnets": [{"type": "static", "address": "192.0.2.8/24"}, {"type": "dhcp"}]}],
}


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ('#cloud-config\n{"b": 1, "a": 2}\n', '#cloud-config\n{"a": 2, "b": 1}\n'),
        ("#!/bin/sh\ntrue\n", "#!/bin/sh\ntrue\n"),
        ({"b": 1, "a": [True, None]}, '#cloud-config\n{"a": [true, null], "b": 1}\n'),
        ('\n #cloud-config \n{"a": 1}\n', '#cloud-config\n{"a": 1}\n'),
        ("## template: jinja\n#cloud-config\n{}\n", "## template: jinja\n#cloud-config\n{}\n"),
        ("Content-Type: text/x-shellscript\n\ntrue\n", "Content-Type: text/x-shellscript\n\ntrue\n"),
        (None, "#cloud-config\n{}\n"),
        ("", "#cloud-config\n{}\n"),
    ],
)
def test_user_data(said: object, text: str) -> None:
    assert plan_seed.seed({"user_data": said}, guest="web1").user_data == text


@pytest.mark.parametrize(
    "text",
    [
        "#ps1_sysnative\nSet-Content C:\\a 1",
        "#ps1\nexit",
        "#PS1_x86\r\nexit\r\n",
        "rem cmd\nexit",
        "<powershell>\nexit\n</powershell>",
        "#INCLUDE\nhttps://example.org/a",
        "#include-once of ours\nhttps://example.org/a",
        "#cloud-boothook now\ntrue",
        "## Template: Jinja\n#cloud-config\n{}\n",
        "From nobody\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x--\n",
        "mime-version: 1.0\n\n",
        "\n #!/bin/sh\r\necho \U0001f642\r\n",
    ],
)
def test_every_kind_of_user_data_is_passed_on_as_it_is(text: str) -> None:
    assert plan_seed.seed({"user_data": text}, guest="web1").user_data == text


@pytest.mark.parametrize(
    "said", [{"ignition": {"version": "3.4.0"}}, '{ "ignition": {"version": "3.4.0"}}', "variant: fcos\n"]
)
def test_an_ignition_config_is_called_one(said: object) -> None:
    with pytest.raises(BadInput, match=r"^cloud_init.user_data of web1: it is an Ignition or Butane config") as caught:
        plan_seed.seed({"user_data": said}, guest="web1")
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("network", "problem"),
    [
        (
            {"ethernets": {"id0": {"match": {"macaddress": 41135085296}}}},
            "ethernets.id0.match.macaddress: 41135085296 is not a MAC address such as '52:54:00:12:34:56'; write it in",
        ),
        (
            {"bridges": {"br0": {"macaddress": "52:54:00:12:34"}}},
            "bridges.br0.macaddress: '52:54:00:12:34' is not a MAC",
        ),
        ({"ethernets": {"a": {"gateway4": "192.0.2.300"}}}, "ethernets.a.gateway4: '192.0.2.300' is not an IP address"),
        ({"ethernets": {"a": {"nameservers": {"addresses": [1.1]}}}}, "nameservers.addresses[0]: 1.1 is not an IP"),
        ({"ethernets": {"a": {"routes": [{"to": "x", "via": "192.0.2.1"}]}}}, "ethernets.a.routes[0].to: 'x' is not"),
        (
            {"version": 1, "config": [{"type": "physical", "mac_address": 41135085296}]},
            "config[0].mac_address: 41135085296",
        ),
    ],
)
def test_an_address_that_is_none_is_refused_with_its_place(network: dict[str, t.Any], problem: str) -> None:
    with pytest.raises(BadInput, match=re.escape(problem)):
        plan_seed.seed({"network_config": {"version": 2, **network}}, guest="web1")


def test_every_way_to_write_an_address_is_taken() -> None:
    nic = {
        "match": {"macaddress": "52:54:00:AB:cd:EF", "name": "e*"},
        "macaddress": "random",
        "addresses": ["192.0.2.7/24"],
        "gateway6": "fe80::1",
        "nameservers": {"addresses": ["192.0.2.1", "2001:db8::1#dns.example.org"], "search": ["example.org"]},
        "routes": [{"to": "default", "via": "192.0.2.1"}, {"to": "198.51.100.0/24", "via": "192.0.2.2", "metric": 7}],
    }
    plan_seed.seed({"network_config": {"version": 2, "ethernets": {"a": nic}}}, guest="web1")
    subnet = {"type": "static", "address": "192.0.2.7/24", "gateway": "192.0.2.1", "dns_nameservers": "1.1.1.1 9.9.9.9"}
    infiniband = "80:00:02:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:10:20:30"
    config = [{"type": "physical", "mac_address": infiniband, "subnets": [subnet]}]
    plan_seed.seed({"network_config": {"version": 1, "config": config}}, guest="web1")


@pytest.mark.parametrize("network", [V2, {"network": V2}, json.dumps(V2), json.dumps({"network": V2})])
def test_network_config_in_every_form(network: object) -> None:
    seed = plan_seed.seed({"network_config": network}, guest="web1")
    assert json.loads(t.cast(str, seed.network_config)) == V2
    assert seed.addresses == ("192.0.2.7", "2001:db8::7")
    assert seed.digest == plan_seed.seed({"network_config": V2}, guest="web1").digest


def test_addresses_of_version_1() -> None:
    assert plan_seed.seed({"network_config": V1}, guest="web1").addresses == ("192.0.2.8",)


@pytest.mark.parametrize("kind", ["ethernets", "bonds", "bridges", "vlans"])
@pytest.mark.parametrize("addresses", [["192.0.2.9/24"], "192.0.2.9/24", [{"192.0.2.9/24": {"label": "x"}}]])
def test_addresses_of_version_2(kind: str, addresses: object) -> None:
    network = {"version": 2, "renderer": "networkd", kind: {"nic0": {"addresses": addresses}, "nic1": None}}
    assert plan_seed.seed({"network_config": network}, guest="web1").addresses == ("192.0.2.9",)


def test_what_is_not_given_is_the_default() -> None:
    seed = plan_seed.seed({"meta_data": "", "network_config": "", "vendor_data": ""}, guest="web1")
    assert (seed.method, seed.on_change, seed.meta_data, seed.network_config) == ("nocloud", "ignore", {}, None)
    assert seed == plan_seed.seed({}, guest="web1")


def test_every_problem_at_once() -> None:
    with pytest.raises(BadInput, match="of web1: ") as caught:
        plan_seed.seed({"user_data": "hostname: a", "meta_data": "not: json", "network_config": [1]}, guest="web1")
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "cloud_init.user_data of web1",
        "cloud_init.meta_data of web1",
        "cloud_init.network_config of web1",
    ]


def test_the_digest_tells_changes_apart() -> None:
    spoken: list[dict[str, t.Any]] = [
        {},
        {"user_data": {"a": 1}},
        {"user_data": {"a": 2}},
        {"meta_data": {"a": 1}},
        {"network_config": V2},
    ]
    spoken += [{"method": "virt_customize"}, {"vendor_data": {"a": 1}}]
    assert len({plan_seed.seed(one, guest="web1").digest for one in spoken}) == len(spoken)
    assert (
        plan_seed.seed({"meta_data": {"b": 1, "a": 2}}, guest="x").digest
        == plan_seed.seed({"meta_data": {"a": 2, "b": 1}}, guest="x").digest
    )


def test_on_change_is_not_content() -> None:
    assert plan_seed.seed({"on_change": "refuse"}, guest="x").digest == plan_seed.seed({}, guest="x").digest


def test_files() -> None:
    seed = plan_seed.seed(
        {"user_data": "#!/bin/sh\n", "meta_data": {"local-hostname": "other", "k": "v"}, "network_config": V2},
        guest="web1",
    )
    files = plan_seed.files(seed, guest="web1", host_key=("PRIVATE", "PUBLIC"))
    assert sorted(files) == ["meta-data", "network-config", "user-data", "vendor-data"]
    assert files["meta-data"] == (
        f'{{"instance-id": "web1-{seed.digest[:12]}", "k": "v", "local-hostname": "other"}}\n'
    )
    assert files["user-data"] == "#!/bin/sh\n"
    vendor = json.loads(files["vendor-data"].partition("\n")[2])
    assert vendor == {"ssh_deletekeys": True, "ssh_keys": {"ed25519_private": "PRIVATE", "ed25519_public": "PUBLIC"}}
    assert "network-config" not in plan_seed.files(plan_seed.seed({}, guest="web1"), guest="web1", host_key=("a", "b"))


def test_an_instance_id_can_be_given() -> None:
    assert plan_seed.instance_id(plan_seed.seed({"meta_data": {"instance-id": "mine"}}, guest="web1"), "web1") == "mine"


def test_user_data_is_not_shown() -> None:
    assert "secret" not in repr(plan_seed.seed({"user_data": {"password": "secret"}}, guest="web1"))


OURS = {"ssh_deletekeys": True, "ssh_keys": {"ed25519_private": "PRIVATE", "ed25519_public": "PUBLIC"}}


def vendor(said: object) -> str:
    seed = plan_seed.seed({"vendor_data": said}, guest="web1")
    return plan_seed.files(seed, guest="web1", host_key=("PRIVATE", "PUBLIC"))["vendor-data"]


def test_vendor_data_is_kept_beside_the_host_key() -> None:
    assert json.loads(vendor({"packages": ["vim"]}).partition("\n")[2]) == {"packages": ["vim"], **OURS}
    script = "#!/bin/sh\necho \u00e9 --corral\n"
    parts = t.cast("list[email.message.Message]", email.message_from_string(vendor(script)).get_payload())
    assert t.cast(bytes, parts[0].get_payload(decode=True)).decode() == script
    assert json.loads(str(parts[1].get_payload()).partition("\n")[2]) == OURS
    assert plan_seed.seed({"vendor_data": script}, guest="a").digest != plan_seed.seed({}, guest="a").digest


def test_host_keys_of_the_user_take_the_place_of_ours() -> None:
    output = {"user_data": {"ssh_keys": {"rsa_private": "R", "ed25519_private": "E"}}}
    seed = plan_seed.seed(output, guest="web1")
    assert list(seed.host_keys.items()) == [("ed25519", "E"), ("rsa", "R")]
    assert "vendor-data" not in plan_seed.files(seed, guest="web1", host_key=("E", "P"))
    seed = plan_seed.seed({"user_data": {"ssh_keys": {"ecdsa_private": "C"}}}, guest="web1")
    assert seed.host_keys == {"ecdsa": "C"}


KEYS_GO = (
    "cloud_init.user_data of web1: vendor_data.enabled: false also disables the SSH host key; omit it, or set ssh_keys"
)
NO_MIME = (
    "cloud_init.vendor_data of web1: it shares its file with the SSH host key and cannot be MIME; write it as "
    "#cloud-config, or give MIME in user_data"
)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"vendor_data": [1]}, "cloud_init.vendor_data of web1: must be a mapping or text, not list"),
        ({"vendor_data": "Content-Type: text/plain\n"}, NO_MIME),
        ({"vendor_data": "MIME-Version: 1.0\n"}, NO_MIME),
        ({"user_data": "#cloud-config\n[1]"}, "cloud_init.user_data of web1: must be a mapping, not list"),
        ({"network_config": {"network": [1]}}, "cloud_init.network_config of web1: must be a mapping, not list"),
        (
            {"network_config": {"version": 1, "config": ["eth0"]}},
            "cloud_init.network_config of web1: version 1 needs config, a list of mappings",
        ),
        (
            {"network_config": {"version": 2, "ethernets": {"a": {"addresses": [{}]}}}},
            "cloud_init.network_config of web1: '' is not an IP address",
        ),
        (
            {"user_data": {"ssh_keys": {"rsa_public": "x"}}},
            (
                "ssh_keys in cloud_init of web1: has no private key; set one of ed25519_private, ecdsa_private, "
                "rsa_private, or omit it"
            ),
        ),
        *[({"user_data": {"vendor_data": {"enabled": off}}}, KEYS_GO) for off in (False, "no", "off", "0", 0)],
    ],
)
def test_a_problem_says_where_it_is(said: dict[str, t.Any], problem: str) -> None:
    with pytest.raises(BadInput, match=r" of web1: ") as caught:
        plan_seed.seed(said, guest="web1")
    assert caught.value.problems == [problem]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"user_data": "#cloud-configuration\n"}, "without a first line"),
        ({"user_data": "#cloud-config\n[1]"}, "must be a mapping, not list"),
        ({"user_data": [1]}, "must be a mapping or text"),
        ({"user_data": {"vendor_data": {"enabled": False}}}, "also disables the SSH host key"),
        ({"user_data": {"ssh_keys": {"rsa_public": "x"}}}, "has no private key"),
        ({"vendor_data": "MIME-Version: 1.0\n"}, "or give MIME in user_data"),
        ({"meta_data": {"instance-id": "x"}, "on_change": "next_boot"}, "never changes"),
        ({"network_config": {"version": 3}}, "version must be 1 or 2, not 3"),
        ({"network_config": {"ethernets": {}}}, "version must be 1 or 2, not None"),
        ({"network_config": {"version": 1}}, "needs config"),
        ({"network_config": {"version": 2, "ethernets": ["eth0"]}}, "ethernets must be a mapping of mappings"),
        (
            {"network_config": {"version": 2, "ethernets": {"a": {"addresses": ["10.0.0.300/24"]}}}},
            "is not an IP address",
        ),
        ({"method": "virt_customize", "on_change": "next_boot"}, "written once"),
        ({"method": "virt_customize", "vendor_data": {"a": 1}}, "it is not read"),
        ({"method": "virt_customize", "user_data": "#!/bin/sh\n"}, "must be a #cloud-config"),
        ({"method": "virt_customize", "network_config": V1}, "of version 2"),
        ({"method": "virt_customize", "user_data": {"users": ["default"]}}, r"users\[\]\.'default'"),
        ({"method": "virt_customize", "user_data": {"users": [{"name": "a; rm"}]}}, "'a; rm' must be a word"),
        (
            {"method": "virt_customize", "user_data": {"swap": {}, "bootcmd": []}, "meta_data": {"k": 1}},
            "these cannot be applied: bootcmd, meta_data.k, swap",
        ),
    ],
)
def test_bad_documents_are_refused(said: dict[str, t.Any], problem: str) -> None:
    with pytest.raises(BadInput, match=problem) as caught:
        plan_seed.seed(said, guest="web1")
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("rest", ["", "{", "[]", "7", '{"text": "a"}', "[" * 100_000])
def test_a_text_that_begins_as_the_controllers_own_is_no_crash(rest: str) -> None:
    with pytest.raises(BadInput, match="cloud-init ignores it without a first line"):
        plan_seed.seed({"user_data": f"#corral-sent\n{rest}"}, guest="web1")
