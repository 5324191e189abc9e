"""Two controllers that placed guests on one host at the same time: the host starts only what it has room for."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest, run_guest_options
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_host_questions import Capacity, check_capacity
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._system import locks, private

CAPACITY = Capacity(memory_mib=1000, vcpus=4)


@pytest.fixture
def connection(tmp_path: Path) -> t.Iterator[t.Any]:
    """A host without guests."""
    (tmp_path / "host.xml").write_text("<node/>")
    with opened(f"test://{tmp_path}/host.xml") as found:
        yield found


def made(connection: t.Any, name: str, *, check_mode: bool = False, **options: t.Any) -> dict[str, t.Any]:
    """A guest without disks and interfaces."""
    wanted = {"name": name, "vcpus": 1, "memory": 400, "disks": [], "interfaces": [], "state": "running", **options}
    return run_guest.converge(connection, run_guest_options.wanted(wanted), Gate(check_mode=check_mode), CAPACITY)


def names(connection: t.Any) -> set[str]:
    return {one.name() for one in connection.listAllDomains()}


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_guest_without_room_is_neither_started_nor_defined(connection: t.Any, check_mode: bool) -> None:
    made(connection, "one")
    made(connection, "two")
    with pytest.raises(
        Refused, match=r"cannot start three: .*MiB of memory: 800 of 1000 are allocated, and it needs 400"
    ):
        made(connection, "three", check_mode=check_mode)
    assert names(connection) == {"one", "two"}
    made(connection, "small", memory=200)
    with pytest.raises(Refused, match="vcpus: 3 of 4 are allocated, and it needs 2"):
        made(connection, "wide", vcpus=2, memory=64)


def test_a_run_that_waited_looks_again(connection: t.Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other run created the same guest: it is there now, and takes no room beside itself."""
    monkeypatch.setattr(private, "place", lambda: str(tmp_path / "corral"))
    monkeypatch.setattr(run_guest, "is_system", lambda _uri: True)
    results: list[dict[str, t.Any]] = []
    run = threading.Thread(target=lambda: results.append(made(connection, "one", memory=900)))
    with locks.locked(run_guest._STARTING):
        run.start()
        run.join(0.5)
        assert run.is_alive()
        made(connection, "one", memory=900, state="present", autostart=True)
    run.join()
    assert [one["steps"] for one in results] == [["start one"]]
    assert connection.lookupByName("one").isActive()
    made(connection, "two", memory=100)
    assert not locks.held(run_guest._STARTING)


def test_guests_that_stay_off_or_are_there_take_no_new_room(connection: t.Any) -> None:
    made(connection, "off", memory=900, state="present")
    made(connection, "one", memory=900)
    assert not made(connection, "one", memory=900)["changed"]
    assert made(connection, "off", memory=900)["changed"]  # it was placed before
    with pytest.raises(Refused, match="1800 of 1000 are allocated"):
        made(connection, "two")


@pytest.mark.parametrize(
    ("memory_mib", "vcpus", "words"),
    [(200, 1, ""), (201, 1, "MiB of memory: 800 of 1000"), (200, 2, "vcpus: 3 of 4"), (201, 2, "1000 .*; vcpus: 3")],
)
def test_limits(memory_mib: int, vcpus: int, words: str) -> None:
    capacity = Capacity(1000, 4, memory_used_mib=800, vcpus_used=3)
    with pytest.raises(Refused, match=words) if words else contextlib.nullcontext():
        check_capacity("web1", capacity, memory_mib=memory_mib, vcpus=vcpus)


def _controller(at_once: t.Any, counter: t.Any, results: t.Any, place: str) -> None:
    """A process that places a guest where only one fits: what it sees is the counter."""
    stack = contextlib.ExitStack()
    private.place = lambda: place
    host = run_guest._Host(_Here(counter), stack, Gate(check_mode=False), Capacity(1, 9))
    at_once.wait()
    with stack:
        try:
            capacity = host.capacity("new")
        except run_guest._WaitedError:  # it is asked again
            capacity = host.capacity("new")
        assert capacity
        try:
            check_capacity("new", capacity, memory_mib=1, vcpus=1)
        except Refused:
            results.put(False)
            return
        counter.value += 1
        results.put(True)


class _Here:
    """The system's libvirt, with as many running guests of 1 MiB as the counter says."""

    def __init__(self, counter: t.Any) -> None:
        self._counter = counter

    def getURI(self) -> str:  # noqa: N802
        return "qemu:///system"

    def listAllDomains(self) -> list[_Guest]:  # noqa: N802
        return [_Guest()] * self._counter.value


class _Guest:
    def name(self) -> str:
        return "there"

    def info(self) -> list[int]:
        return [1, 1024, 1024, 1, 0]

    def UUIDString(self) -> str:  # noqa: N802
        return "there"

    def isActive(self) -> bool:  # noqa: N802
        return True


def test_controllers_decide_one_after_the_other(tmp_path: Path) -> None:
    """Of eight that look at the same time one gets the room."""
    processes = multiprocessing.get_context("fork")
    at_once, counter, results = processes.Barrier(8), processes.Value("i", 0, lock=False), processes.Queue()
    arguments = (at_once, counter, results, str(tmp_path / "corral"))
    controllers = [processes.Process(target=_controller, args=arguments) for _number in range(8)]
    for one in controllers:
        one.start()
    answers = [results.get(timeout=1200) for _one in controllers]
    for one in controllers:
        one.join(timeout=1200)
    assert sorted(answers) == [False] * 7 + [True]


def test_what_counts_as_promised(connection: t.Any) -> None:
    """All that run, and those that start with the host; but one."""
    made(connection, "one", memory=300)
    made(connection, "off", memory=200, state="present")
    made(connection, "soon", memory=100, state="present", autostart=True)
    [one] = [found for found in connection.listAllDomains() if found.name() == "one"]
    assert libvirt_query.committed(connection, but="") == (400, 2)
    assert libvirt_query.committed(connection, but=one.UUIDString()) == (100, 1)
