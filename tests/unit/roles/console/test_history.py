"""What guests used: kept through a restart, in means for a day, and forgotten then."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.corral.virt.roles.console.files.corral_console.history import History, Sample

START = 1_800_000_000


class Clock:
    now = float(START)

    def __call__(self) -> float:
        return self.now


def fill(history: History, clock: Clock, seconds: int, cpu: float = 10.0) -> None:
    for _each in range(0, seconds, 20):
        history.add([Sample("guest", cpu, None, 100.0), Sample("host/a", 50.0)])
        clock.now += 20


def test_samples_of_an_hour_survive_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    fill(History(tmp_path / "db", clock=clock), clock, 600)
    again = History(tmp_path / "db", clock=clock)
    found = again.read("guest", "hour")
    assert found["step"] == 20 and found["at"] == list(range(START, START + 600, 20))
    assert set(found["cpu"]) == {10.0} and set(found["memory"]) == {None} and set(found["read"]) == {100.0}
    nothing = again.read("nobody", "hour")
    assert nothing.pop("step") == 20 and set(map(tuple, nothing.values())) == {()}


def test_a_day_is_of_means_that_a_restart_makes_up_for(tmp_path: Path) -> None:
    clock = Clock()
    fill(History(tmp_path / "db", clock=clock), clock, 140, cpu=10.0)
    history = History(tmp_path / "db", clock=clock)  # in the middle of a period
    fill(history, clock, 160, cpu=20.0)
    fill(history, clock, 320)
    found = history.read("guest", "day")
    assert found["at"][0] == START and found["cpu"][0] == (7 * 10 + 8 * 20) / 15
    assert history.read("host/a", "day")["cpu"][0] == 50.0


def test_what_is_old_is_forgotten_and_gaps_stay_gaps(tmp_path: Path) -> None:
    clock = Clock()
    history = History(tmp_path / "db", clock=clock)
    fill(history, clock, 600)
    clock.now += 1200
    fill(history, clock, 40)
    found = history.read("guest", "hour")
    assert found["cpu"].count(None) == 1 and len(found["at"]) == 33
    clock.now += 2 * 86400
    fill(history, clock, 20)
    assert len(history.read("guest", "hour")["at"]) == 1
    assert len(history.read("guest", "day")["at"]) == 0
    clock.now -= 2 * 86400
    assert history.read("guest", "day")["at"] == [], "its means went, too"
