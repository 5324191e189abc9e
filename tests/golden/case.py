"""One golden case: a folder that says what a host has and what a user wants; the rest is worked out by the real code.

  wanted.yml    options of `virt_domain`
  found.xml     the guest's definition; absent for a guest that does not exist (links to found/, where real dumps are)
  live.xml      what runs; absent for a guest that is shut off
  found.yml     more about it where that matters: state, autostart, keeps
  record.yml    instead of wanted.yml: what is to be remembered of the guest
expected:
  after.xml     the definition; absent where there is none to be stored
  changes.yml   the diff, as Ansible shows it
  steps.yml     steps, pending and notes; or the refusal
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._core import step_data
from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    libvirt_domain,
    plan_guest_steps,
    run_guest,
    run_guest_options,
)
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._seed import files_seed
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse, text

__all__ = ["CASES", "GOLDEN", "Case", "Outcome", "normal", "options", "play"]

GOLDEN = Path(__file__).parent
HOST_URI = f"test://{GOLDEN / 'host.xml'}"
HOST_KEY = ("(private key)\n", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGolden")


@dataclasses.dataclass(frozen=True)
class Case:
    """A folder of tests/golden."""

    name: str

    def file(self, name: str) -> Path:
        """A file of the case."""
        return GOLDEN / self.name / name

    def text(self, name: str) -> str | None:
        """Its content, or None."""
        return self.file(name).read_text() if self.file(name).exists() else None

    def data(self, name: str) -> dict[str, t.Any]:
        """Its content as YAML; empty when there is none."""
        return yaml.safe_load(self.text(name) or "") or {}

    @property
    def wanted(self) -> GuestSpec:
        """What the user says."""
        return options(self.data("wanted.yml"))

    @property
    def found(self) -> FoundGuest | None:
        """What the host has."""
        xml = self.text("found.xml")
        if xml is None:
            return None
        live, more = self.text("live.xml"), self.data("found.yml")
        state = more.pop("state", "running" if live else "shutdown")
        more.pop("keeps", None)
        return look_alike(xml, live, state=state, **more)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of it, in the form of the expected files."""

    after: str | None
    changes: dict[str, t.Any]
    steps: dict[str, t.Any]


class _Recording(Gate):
    """Lets steps on storage through to the test driver and only notes the others: it is no KVM."""

    def __init__(self, connection: t.Any) -> None:
        super().__init__(check_mode=False)
        self.connection = connection
        self.steps: list[t.Any] = []

    def run(self, steps: t.Sequence[t.Any], do: t.Callable[[t.Any], object]) -> list[object]:
        """Note all, each as JSON brings it back; do those on storage."""
        for planned in steps:
            step: t.Any = step_data.step_of(json.loads(json.dumps(step_data.as_data(planned))))
            assert step == planned, "it holds what its types do not say"
            self.steps.append(step)
            _on_storage(self.connection, step)
        return []


def _on_storage(connection: t.Any, step: plan_guest_steps.GuestStep) -> None:
    if isinstance(step, plan_guest_steps.CreateVolume):
        libvirt_domain.create_volume(connection, step)
    elif isinstance(step, plan_guest_steps.DeleteVolume):
        libvirt_storage.delete(connection, step.path)
    elif isinstance(step, plan_guest_steps.GrowDisk):  # the test driver cannot resize
        xml = t.cast(str, libvirt_storage.volume_at(connection, step.path))
        grown = parse(xml)
        grown.find("capacity").text = str(step.size_bytes)
        libvirt_storage.create(connection, "default", text(grown), name=grown.findtext("name"), replace=True)


def look_alike(xml: str, live: str | None = None, *, state: str = "shutdown", **more: t.Any) -> FoundGuest:
    """A guest as `look.find` would return it."""
    root = parse(xml)
    name, uuid = root.findtext("name"), root.findtext("uuid")
    output: dict[str, t.Any] = {"persistent": True, "autostart": False, **more}
    return FoundGuest(name=name, uuid=uuid, state=state, xml=xml, live_xml=live, **output)


def options(said: t.Mapping[str, t.Any]) -> GuestSpec:
    """A guest's options, checked and completed as Ansible does it."""
    result = ArgumentSpecValidator(run_guest_options.GUEST_OPTIONS).validate(dict(said))
    if result.error_messages:
        raise ValueError("; ".join(result.error_messages))
    return run_guest_options.wanted(result.validated_parameters)


def normal(xml: str) -> str:
    """The same document, printed in one way."""
    return text(parse(xml))


@contextlib.contextmanager
def host(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, FoundGuest], managed_state: t.Sequence[str] = ()
) -> t.Iterator[t.Any]:
    """A hypervisor with those guests: libvirt's test driver for storage and networks, recorded documents for what it
    cannot be.
    """
    monkeypatch.setattr(libvirt_query, "find", lambda _connection, name: found.get(name))
    monkeypatch.setattr(libvirt_query, "managed_state", lambda _connection, _uuid: tuple(managed_state))
    monkeypatch.setattr(libvirt_query, "capabilities", lambda _connection: (GOLDEN / "capabilities.xml").read_text())
    monkeypatch.setattr(libvirt_query, "libvirt_version", lambda _connection: 99_000_000)
    monkeypatch.setattr(files_seed, "host_key", lambda: HOST_KEY)
    with opened(HOST_URI) as connection:
        yield connection


def play(connection: t.Any, wanted: GuestSpec, found: FoundGuest | None) -> Outcome:
    """Let the front converge, and see what it would tell libvirt."""
    gate = _Recording(connection)
    try:
        result = run_guest.converge(connection, wanted, gate)
    except VirtError as error:
        return Outcome(None, {}, {type(error).__name__.lower(): str(error)})
    defined = [step.xml for step in gate.steps if isinstance(step, plan_guest_steps.Define)]
    kept = found.xml if found and wanted.state != "absent" else None
    # wherever the checkout is
    result["notes"] = [note.replace(HOST_URI, "test:///host.xml") for note in result["notes"]]
    report = {key: result[key] for key in ("steps", "pending", "notes") if result[key]}
    return Outcome(normal(defined[-1]) if defined else kept and normal(kept), _plain(result["diff"]), report)


def _plain(value: t.Any) -> t.Any:
    """As JSON would carry it."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


CASES = sorted((Case(path.parent.name) for path in GOLDEN.glob("*/wanted.yml")), key=lambda case: case.name)
