"""The web console with pinned Python packages in place of the distribution's."""

from __future__ import annotations

import functools
import json
import os
import signal
import ssl
import typing as t
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.roles.console.files import wheels
from ansible_collections.corral.virt.tests.lab.console import PACKAGES, PASSWORD, Site, changes
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    ROOT,
    hypervisors,
)

pytestmark = [pytest.mark.lab, pytest.mark.deep]  # each installs dozens of packages, or builds one

LAB = Site("conpy")
LIB = "/usr/lib/corral-console"
on = functools.partial(LAB.on, "hyper1")
GIVEN: dict[str, t.Any] = {"console_users": [{"name": "alice", "password": PASSWORD, "groups": ["admins"]}]}
PINNED = {**GIVEN, "console_python_packages": "pinned"}
# As on Enterprise Linux 9, whose binding of libvirt is for another Python.
BUILT_PACKAGES = ["gcc", "libvirt-dev", "openssh-client", "openssl", "pkg-config", "python3-dev", "python3-venv"]
BUILT_HERE = {"python": "python3", "packages": BUILT_PACKAGES, "python_packages": [], "build": True}


@pytest.fixture(scope="module", autouse=True)
def console() -> Iterator[None]:
    """A machine without it."""
    with hypervisors("conpy", hosts=1):
        on("nft add rule inet filter input tcp dport 8443 accept")
        yield


def used() -> str:
    """The environment in use."""
    return on(f"readlink {LIB}/python || true")


def versions() -> dict[str, str]:
    """Of the packages in it, as pip says."""
    listed = on(f"{LIB}/python/bin/python -m pip list --local --format json --disable-pip-version-check")
    return {each["name"].lower().replace("_", "-"): each["version"] for each in json.loads(listed)}


def asked(path: str, cookie: str = "", body: object = None) -> t.Any:
    """An answer of the page, and the cookie that it sets."""
    headers = {"origin": LAB.url, "cookie": cookie, "content-type": "application/json"}
    request = urllib.request.Request(LAB.url + path, json.dumps(body).encode() if body else None, headers)
    context = ssl.create_default_context(cadata=on("cat /etc/corral-console/tls/ca.crt"))
    with urllib.request.urlopen(request, context=context) as answer:
        return json.loads(answer.read()), (answer.headers["set-cookie"] or "").partition(";")[0]


def runs_a_job() -> None:
    """Log in and drain the host, which has no guests."""
    _answer, cookie = asked("/api/login", body={"user": "alice", "password": PASSWORD})
    for action in ("drain", "undrain"):
        job = asked("/api/jobs", cookie, {"action": action, "arguments": {"host": "hyper1"}})[0]["id"]
        until(lambda job=job: asked(f"/api/jobs/{job}", cookie)[0]["ended"], timeout_s=120)  # type: ignore[misc]
        ended = asked(f"/api/jobs/{job}", cookie)[0]
        assert ended["state"] == "succeeded", (
            ended,
            on(f"find /var/lib/corral-console-jobs -path '*{job}*' -name '*log' -exec tail -n 40 {{}} +"),
        )


def test_a_run_that_is_killed_is_made_up_for() -> None:
    assert changes(LAB.install("--check", **PINNED)) > 0 and on("ls -d /usr/lib/corral-console || true") == ""
    begun = LAB.start(*LAB.installation(**PINNED))
    until(lambda: "requirements.txt" in on("pgrep -af 'pip install' || true"), timeout_s=300)
    os.killpg(begun.pid, signal.SIGKILL)
    begun.communicate()
    on("pkill -KILL -f 'pip install'")
    assert used() == "", "what is not complete is not used"
    assert changes(LAB.install("--check", **PINNED)) > 0
    LAB.install(**PINNED)
    assert on(f"{LIB}/python/bin/python -m pip check") == "No broken requirements found."
    pins = {pin["package"]: pin["version"] for pin in wheels.Machine("3.11", "x86_64", distribution=False).pins()}
    assert pins.items() <= versions().items() and "libvirt-python" not in pins
    runs_a_job()


def test_a_second_run_changes_nothing() -> None:
    assert changes(LAB.install("--check", **PINNED)) == changes(LAB.install(**PINNED)) == 0


def test_the_distributions_packages_are_used_where_they_are(tmp_path: Path) -> None:
    before = used()
    LAB.install(**GIVEN)
    assert used() != before and sorted(set(versions()) - {"pip", "setuptools"}) == ["ansible-core", "ansible-runner"]
    assert on(f"ls -d {before}") == before, "jobs may still run from it"
    runs_a_job()
    assert changes(LAB.install(**GIVEN)) == 0
    printed = " ".join(LAB.install(ok=False, **PINNED, console_libraries=str(tmp_path), console_fetch=False).split())
    assert "make it elsewhere with: npm pack htm" in printed


def test_the_binding_of_libvirt_is_built_for_another_python() -> None:
    assert any(path.name.startswith("ansible_core") for path in PACKAGES.iterdir())
    LAB.install(**GIVEN, __console_systems={"Debian": BUILT_HERE})
    where = on(f"{LIB}/python/bin/python -I -c 'import libvirt; print(libvirt.__file__)'")
    assert where.startswith(f"{LIB}/python/") and "libvirt-python" in versions()
    runs_a_job()
    assert changes(LAB.install(**GIVEN, __console_systems={"Debian": BUILT_HERE})) == 0


def commands(title: str, number: int) -> str:
    """Those of root on the console's machine that a section of the guide shows, as one script."""
    section = (ROOT / "docs/docsite/rst/guide_console.rst").read_text().partition(f"\n{title}\n---")[2]
    block = section.split(".. code-block:: console\n\n")[number].partition("\n\n")[0]
    return "set -e\n" + "\n".join(line.strip().removeprefix("# ") for line in block.splitlines())


def test_a_backup_is_restored_by_the_commands_of_the_guide_and_brings_back_no_access() -> None:
    """All that was decided is there; what was ended since the backup is not valid again, and hosts let it in."""
    title = "Back it up and restore it"
    _answer, cookie = asked("/api/login", body={"user": "alice", "password": PASSWORD})
    runs_a_job()
    before, authority = asked("/api/jobs", cookie)[0], on("cat /etc/corral-console/tls/ca.crt")
    lines = len(asked("/api/audit", cookie)[0])
    on(commands(title, 1))
    until(lambda: "8443" in on("ss -Hltn"))
    assert asked("/api/me", cookie)[0].get("user") == "alice", "users stay logged in"
    # Another machine, on which the console was just installed.
    on(
        "systemctl stop corral-console.service corral-console-jobs.socket corral-console-jobs.service; "
        "rm -r /var/lib/corral-console-jobs /etc/corral-console/ssh /etc/corral-console/tls"
    )
    LAB.install(**GIVEN)
    assert asked("/api/me", cookie)[0] == {} and on("cat /etc/corral-console/tls/ca.crt") != authority
    on(commands(title, 2))
    assert changes(LAB.install(**GIVEN)) > 0, "the hypervisors get the restored keys"
    assert changes(LAB.install(**GIVEN)) == 0
    assert on("cat /etc/corral-console/tls/ca.crt") == authority
    assert asked("/api/me", cookie)[0] == {}, "its session was ended by the restoration"
    _answer, cookie = asked("/api/login", body={"user": "alice", "password": PASSWORD})
    assert asked("/api/jobs", cookie)[0] == before and len(asked("/api/audit", cookie)[0]) >= lines
    runs_a_job()
