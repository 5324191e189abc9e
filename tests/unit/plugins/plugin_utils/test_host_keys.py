"""Which host keys are trusted, of those that hypervisors report."""

from __future__ import annotations

import base64
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._inventory import known_hosts


def key(kind: str = "ssh-ed25519", inside: str | None = None, rest: bytes = bytes(36)) -> str:
    """A public key in one line."""
    name = (inside or kind).encode()
    return f"{kind} {base64.b64encode(len(name).to_bytes(4, 'big') + name + rest).decode()}"


def made(name: object, ssh_host_key: object = None) -> dict[str, t.Any]:
    return {"results": [{"name": name, "ssh_host_key": ssh_host_key or key()}]}


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256"])
def test_keys_of_guests_placed_there_are_trusted(kind: str) -> None:
    trusted = known_hosts.trusted(
        {"web1": "hyper1"}, {"hyper1": made("web1", key(kind)), "hyper2": {"skipped": True}, "hyper3": None}
    )
    assert trusted == ([{"name": "web1", "ssh_host_key": key(kind)}], [])


@pytest.mark.parametrize("name", ["db1", "firewall", "web1\x1b[2K", "*", "web1,db1", None, ["web1"], {"a": 1}])
def test_a_hypervisor_gives_no_keys_for_guests_elsewhere(name: object) -> None:
    keys, [warning] = known_hosts.trusted({"web1": "hyper1", "db1": "hyper2"}, {"hyper1": made(name)})
    assert keys == []
    assert warning.startswith("hyper1 reports a host key for ") and warning.isprintable()


@pytest.mark.parametrize(
    "text",
    [f"{key()}\nfirewall {key()}", f"{key()}\n", f"{key()} comment", f" {key()}", f"@cert-authority {key()}", key("ssh-dss"),
     "ssh-ed25519 ", key(inside="ssh-rsa"), "ssh-ed25519 AAAA", "ssh-ed25519 A", 7, ["x"], key().replace(" ", "\t")],
)  # fmt: skip
def test_what_is_no_single_public_key_becomes_no_line(text: object) -> None:
    keys, [warning] = known_hosts.trusted({"web1": "hyper1"}, {"hyper1": made("web1", text)})
    assert (keys, warning) == ([], "hyper1 reports a host key for web1 that is not a public SSH key: it is not trusted")


@pytest.mark.parametrize(
    "result", [None, "x", {"results": "x"}, {"results": {"name": "web1"}}, {"results": ["x", None, {}]}]
)
def test_answers_of_any_form_break_nothing(result: object) -> None:
    assert known_hosts.trusted({"web1": "hyper1"}, {"hyper1": result}) == ([], [])
