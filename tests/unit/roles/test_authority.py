"""An authority that is given to role pki as texts is given whole."""

from __future__ import annotations

import json
import time
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.plugins.plugin_utils._authority.authorities import MakeAuthority
from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, each, value

NAMES = ("pki_ca_certificate", "pki_ca_key", "pki_qemu_ca_certificate", "pki_qemu_ca_key")


@pytest.mark.parametrize("others", [{}, dict.fromkeys(NAMES, "")], ids=["unsaid", "empty"])
def test_a_part_of_the_authorities_is_refused(tmp_path: Path, others: dict[str, str]) -> None:
    task = next(
        task for task in yaml.safe_load((ROLES / "pki/tasks/main.yml").read_text()) if "Refuse half" in task["name"]
    )
    refusal = task["ansible.builtin.assert"]
    own = yaml.safe_load((ROLES / "pki/vars/main.yml").read_text())
    common = {**others, "__pki_given": own["__pki_given"], "message": refusal["fail_msg"]}
    cases = [(), NAMES, NAMES[:1], NAMES[:2], NAMES[1:]]
    known = [{**common, **dict.fromkeys(given, "PEM")} for given in cases]
    found = each(tmp_path, f"[({refusal['that']}), message]", [], known)
    for given, (taken, message) in zip(cases, found, strict=True):
        missing = [name for name in NAMES if given and name not in given]
        assert taken is (not missing), given
        assert not missing or message.startswith(f"{', '.join(missing)} missing"), message


@pytest.mark.parametrize(
    ("known", "file", "asks"),
    [
        ({}, "", True),
        ({}, "ca-cert.pem", False),
        ({}, "libvirt/1/ca-cert.pem", False),
        ({"pki_replace_authority": "true"}, "", False),
        (dict.fromkeys(NAMES, "PEM"), "", False),
    ],
)
def test_hosts_are_asked_before_a_controller_makes_an_authority(
    tmp_path: Path, known: dict[str, str], file: str, asks: bool
) -> None:
    (tmp_path / "ca/libvirt/1").mkdir(parents=True)
    if file:
        (tmp_path / "ca" / file).touch()
    files = [ROLES / "pki" / part / "main.yml" for part in ("defaults", "vars")]
    given = ("-e", json.dumps({"pki_ca_dir": str(tmp_path / "ca"), **known}))
    assert value(tmp_path, "__pki_asks", files, {}, arguments=given) is asks


@pytest.mark.parametrize(
    ("host", "first", "done"),
    [("h1", True, [True, True, True]), ("h2", True, [True, False, False]), ("h1", False, [False, False, True])],
)
def test_only_the_first_pass_renews_and_only_the_first_host_makes_a_ca(
    tmp_path: Path, host: str, first: bool, done: list[bool]
) -> None:
    """Else each pass that a new CA takes would issue all certificates anew, or make another CA."""
    [issue] = yaml.safe_load((ROLES / "pki/tasks/certify.yml").read_text())
    options = {name: issue["corral.virt.virt_tls"][name] for name in ("force", "new_authority", "controller")}
    known = {**options, **issue["vars"], "__pki_first": first}
    given = dict.fromkeys(("pki_renew", "pki_new_authority", "pki_controller"), "true")
    found = value(
        tmp_path,
        f"[{', '.join(options)}]",
        [],
        {**known, **given},
        host=host,
        inventory="hyper: {hosts: {h1: {}, h2: {}}}",
    )
    assert found == done


@pytest.mark.parametrize(("rolling", "found"), [({}, False), ({"libvirt": ["h1"]}, True)])
def test_a_ca_is_replaced_to_the_end(tmp_path: Path, rolling: dict[str, list[str]], found: bool) -> None:
    """Whichever host said that it is not."""
    inventory = json.dumps(
        {"hyper": {"hosts": {"h1": {"__pki_tls": {}}, "h2": {"__pki_tls": {"rolling": rolling}}, "h3": {}}}}
    )
    assert value(tmp_path, "__pki_rolling", [ROLES / "pki/vars/main.yml"], {}, host="h1", inventory=inventory) is found


@pytest.mark.parametrize(("arguments", "renews"), [({}, True), ({"revoke": ["h3"]}, False)])
def test_a_rotation_renews_unless_it_revokes(tmp_path: Path, arguments: dict[str, t.Any], renews: bool) -> None:
    [play] = yaml.safe_load((ROLES.parent / "playbooks/rotate_certificates.yml").read_text())
    known = {**play["tasks"][-1]["vars"], "virt_asked": {"arguments": {"authority": False, **arguments}}}
    assert value(tmp_path, "pki_renew", [], known) is renews


def test_a_check_refuses_a_host_whose_clock_the_run_would_refuse(tmp_path: Path) -> None:
    """A certificate is valid from a day before the controller's time on, for `pki_days`."""
    files = [ROLES / "pki" / part / "main.yml" for part in ("defaults", "vars")]
    fits = {0: True, -0.9: True, -1.1: False, 300: True, 400: False, -9000: False}  # days that it is ahead
    clocks = [{"stdout": str(int(time.time() + days * 86400))} for days in fits]
    known = [{"__pki_clock": clock, "pki_days": 365} for clock in clocks]
    assert each(tmp_path, "__pki_valid_there | bool", files, known) == [*fits.values()]


def test_a_new_ca_that_a_check_does_not_make_is_among_its_steps(tmp_path: Path) -> None:
    steps = [[], ["install libvirt certificate"], [str(MakeAuthority("libvirt", "/ca/libvirt/2"))]]
    known = [{"__pki_tls": {"steps": these}} for these in steps]
    assert each(tmp_path, "__pki_makes_ca", [ROLES / "pki/vars/main.yml"], known) == [False, False, True]


def test_the_clock_is_read_only_where_a_check_would_issue_certificates() -> None:
    tasks = yaml.safe_load((ROLES / "pki/tasks/main.yml").read_text())
    names = [task["name"] for task in tasks]
    at = names.index("Read the clock of a host that is to get certificates")
    assert (
        names[at - 1] == "Issue certificates"
        and names[at + 1] == "Refuse a host where new certificates would not be valid"
    )
    assert (
        tasks[at]["when"] == "ansible_check_mode and (__pki_tls.renewed | length > 0 or __pki_makes_ca)"
        and tasks[at]["check_mode"] is False
    )
