"""What the demo does with hosts that it cannot go on with."""

from __future__ import annotations

import importlib
import re
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.tools.payload import ROOT


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> t.Any:
    """One whose hosts and files are below `tmp_path`."""
    monkeypatch.syspath_prepend(str(ROOT / "tests/lab"))
    for name in [name for name in sys.modules if name == "demo" or name.partition(".")[0] == "corral_lab"]:
        monkeypatch.delitem(sys.modules, name)
    module = importlib.import_module("demo")
    monkeypatch.setattr(module, "STATE", tmp_path / "state")
    made = module.Demo("demo")
    made.folder = tmp_path / "build"
    return module, made


def test_hosts_whose_authority_is_gone_are_told_with_what_removes_them(demo: t.Any, tmp_path: Path) -> None:
    module, made = demo
    made.refuse_lost()
    trusted = {name: tmp_path / f"state/demo/{name}/root/etc/pki/qemu/ca-cert.pem" for name in ("hyper1", "hyper2")}
    for number, path in enumerate(trusted.values()):
        path.parent.mkdir(parents=True)
        path.write_text(f"authority {number}\nauthority of others\n")
    ours = tmp_path / "build/ca/qemu/1/ca-cert.pem"
    ours.parent.mkdir(parents=True)
    ours.write_text("authority 0\n")
    with pytest.raises(
        module.Lost, match=r"^the demo's hosts \(hyper2\) trust a certificate authority whose keys were in "
    ) as lost:
        made.refuse_lost()
    assert made.targets(lost.value.more).startswith("`make demo-down` removes what is left")
    trusted["hyper2"].write_text("another one\nauthority 0\n")
    made.refuse_lost()
    other = module.Demo("mine")
    assert other.targets(module.Failed.more).startswith(
        "`make demo DEMO=mine` goes on from here, `make demo-down DEMO=mine`"
    )


def test_labs_of_tests_have_names_of_their_own() -> None:
    """Files of tests run side by side, and a lab of the same name would be taken away."""
    users: dict[str, set[str]] = {}
    for path in (ROOT / "tests/lab").glob("test_*.py"):
        for name in re.findall(r'[hH]ypervisors\("(\w+)"', path.read_text()):
            users.setdefault(name, set()).add(path.name)
    assert len(users) > 30
    assert not {name: files for name, files in users.items() if len(files) > 1}
