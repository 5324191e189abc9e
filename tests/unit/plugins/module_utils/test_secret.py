"""What is planned of a secret, whatever the host; no step holds a value."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun, run_noun_options
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import Define, NounPlan
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import plan
from ansible_collections.corral.virt.plugins.module_utils._secret.fields_secret import is_named
from ansible_collections.corral.virt.plugins.module_utils._secret.plan_secret import SECRET, ValueState

SCHEMA = Path("/usr/share/libvirt/schemas/secret.rng")
UUID = "2ff4c3c5-8a3b-4f9d-9b5e-cc7cf3cbb8f2"
XML = "<secret ephemeral='no' private='{}'><uuid>{}</uuid><usage type='ceph'><name>a</name></usage></secret>"
SET, DEFINE = "set the value of secret a of usage ceph", "define secret a of usage ceph"


@dataclasses.dataclass(frozen=True)
class Host:
    """A `SecretHost` that knows all its answers."""

    state: ValueState = "same"
    named_by: tuple[tuple[str, str], ...] = ()
    other: str | None = None

    def value(self, _given: bytes) -> ValueState:
        return self.state

    def named(self, _uuid: str) -> str | None:
        return self.other

    def documents(self) -> t.Iterable[tuple[str, str]]:
        return self.named_by


def planned(there: str | None = None, host: Host | None = None, **options: t.Any) -> NounPlan:
    """The plan for secret `a` of Ceph; `there`: what it has as private."""
    given = {"name": "a", "usage": "ceph", **options}
    result = ArgumentSpecValidator(run_noun_options.argument_spec(SECRET.schema)).validate(given)
    assert not result.error_messages, result.error_messages
    found = Found(UUID, xml=XML.format(there, UUID), digest="d") if there else None
    return plan(SECRET, run_noun.spec(SECRET, result.validated_parameters), found, host or Host())


@pytest.mark.parametrize(
    ("there", "state", "options", "steps"),
    [
        (None, "none", {}, [DEFINE]),
        (None, "none", {"value": "x"}, [DEFINE, SET]),
        (None, "none", {"value": "x", "private": True}, [f"{DEFINE} (private)", SET]),
        ("no", "same", {"value": "x"}, []),
        ("no", "other", {"value": "x"}, [SET]),
        ("no", "none", {"value": "x"}, [SET]),
        ("no", "other", {"value": "x", "update_value": "on_create"}, []),
        ("no", "none", {"value": "x", "update_value": "on_create"}, [SET]),
        ("no", "same", {"value": "x", "update_value": "always"}, []),
        ("yes", "private", {"value": "x"}, []),
        ("yes", "private", {"value": "x", "update_value": "always"}, [SET]),
        ("no", "same", {"description": "of a"}, [f"{DEFINE} (description)"]),
        ("no", "same", {"private": True}, [f"{DEFINE} (private)"]),
        ("no", "same", {"state": "absent"}, ["undefine secret a of usage ceph"]),
        (None, "none", {"state": "absent"}, []),
    ],
)
def test_the_steps(there: str | None, state: ValueState, options: dict[str, t.Any], steps: list[str]) -> None:
    assert [str(step) for step in planned(there, Host(state), **options).steps] == steps


def test_notes() -> None:
    assert "has no value yet" in planned().notes[0] and not planned(value="x").notes
    assert "nobody can tell" in planned("yes", Host("private"), value="x").notes[0]
    assert not planned("yes", Host("private"), value="x", update_value="always").notes
    assert not planned("no", Host("same"), value="x").notes


def test_no_plan_holds_a_value() -> None:
    made = planned(value="C4nary5ecret")
    assert "C4nary5ecret" not in repr(made) and "C4nary5ecret" not in "".join(
        step.xml for step in made.steps if isinstance(step, Define)
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"value": ""}, "must not be empty"),
        ({"value": "x" * 65537}, "at most 65536 bytes"),
        ({"value": "%%%", "value_encoding": "base64"}, "it is not Base64"),
        ({"usage": "volume"}, "the absolute path of the volume"),
        ({"usage": "none"}, "name: "),
        ({"name": ""}, "name: "),
        ({"name": "a\nb"}, "name: "),
        ({"name": "ü" * 128}, "name: "),
        ({"uuid": "x"}, "uuid"),
    ],
)
def test_bad_values(options: dict[str, t.Any], text: str) -> None:
    with pytest.raises(BadInput, match=text):
        planned(**options)


def test_what_cannot_be() -> None:
    with pytest.raises(Refused, match="keeps a private secret private"):
        planned("yes", private=False)
    taken = Host(other="secret b")
    with pytest.raises(Refused, match=f"secret b has the UUID {UUID}"):
        planned(None, taken, uuid=UUID)
    assert not planned("no", taken).steps and not planned(None, taken, state="absent").steps
    with pytest.raises(Refused, match="cannot change uuid"):
        planned("no", uuid=UUID.replace("2", "3"))


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (f"<domain><devices><disk><source><auth><secret type='ceph' uuid='{UUID}'/></auth></source></disk></devices></domain>", True),
        ("<domain><devices><disk><source><auth><secret type='ceph' usage='a'/></auth></source></disk></devices></domain>", True),
        ("<pool><source><auth type='ceph'><secret usage='a'/></auth></source></pool>", True),
        ("<domain><secret type='iscsi' usage='a'/></domain>", False),
        ("<domain><secret type='passphrase' usage='a'/></domain>", True),
        (f"<domain><devices><tpm><backend><encryption secret='{UUID}'/></backend></tpm></devices></domain>", True),
        ("<domain><devices><disk><auth><secret type='ceph' usage='b'/></auth></disk></devices></domain>", False),
    ],
)  # fmt: skip
def test_who_names_it(document: str, *, named: bool) -> None:
    assert is_named(document, UUID, "ceph", "a") is named
    host = Host(named_by=(("guest g", document),))
    if not named:
        assert planned("no", host, state="absent").steps
        return
    with pytest.raises(Refused, match="guest g need"):
        planned("no", host, state="absent")
    assert planned("no", host, state="absent", force=True).steps


def test_a_new_one_has_the_same_uuid_on_every_host() -> None:
    cases: tuple[dict[str, t.Any], ...] = ({}, {"value": "x"}, {"usage": "tls"}, {"name": "b"})
    uuids = {planned(**options).row["uuid"] for options in cases}
    assert len(uuids) == 3 and planned(uuid=UUID).row["uuid"] == UUID and planned("no").row["uuid"] == UUID


@pytest.mark.skipif(not SCHEMA.exists(), reason=f"no {SCHEMA}")
@pytest.mark.parametrize("usage", ["ceph", "iscsi", "tls", "volume", "vtpm", "none"])
def test_libvirt_accepts_the_document(usage: str) -> None:
    name = {"volume": "/p/a", "none": UUID}.get(usage, "a")
    (step,) = planned(name=name, usage=usage, description="<of a>", private=True).steps
    assert isinstance(step, Define)
    schema = etree.RelaxNG(etree.parse(str(SCHEMA)))
    assert schema.validate(etree.fromstring(step.xml)), f"{schema.error_log}\n{step.xml}"
