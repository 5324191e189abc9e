"""What role image_builder refuses before it builds."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.roles.image_builder.files import check_settings
from ansible_collections.corral.virt.roles.image_builder.files.check_settings import Host, Settings, problems

HOST = Host(
    user_uid=0,
    os_family="Debian",
    architecture="x86_64",
    missing=[],
    packages=[],
    dest={"exists": True, "isdir": True, "woth": False},
    customize="/home/me/customize.sh",
    customize_exists=True,
    kiwi_runs=True,
    descriptions=1,
)
DEBIAN = Settings(
    builder="mmdebstrap",
    image="debian-12.qcow2",
    dest="/srv/images",
    release="bookworm",
    mirror="",
    keyring="",
    size="2GiB",
    packages=[],
    customize="",
    description="",
    profiles=[],
    kiwi="kiwi-ng",
    install=True,
)
KIWI = dataclasses.replace(DEBIAN, builder="kiwi", release="", description="/srv/kiwi/leap")
ROOT = "mounting the image requires root: add --become"
DIRECTORY = "/srv/images is not a directory: choose another"
EVERYBODY = (
    "every user can write to /srv/images and so replace what root runs there: choose another directory, or chmod o-w it"
)
MISSING = "programs are missing (sfdisk, mkfs.ext4), on Debian: apt-get install e2fsprogs fdisk"
ARM = "it is aarch64, but this boot loader is for x86_64: build on an x86_64 host, or with builder=kiwi"
LOST = (
    "customize: /home/me/customize.sh does not exist on the controller: "
    "set the path of a program there with customize=PATH"
)
NO_LIST = 'packages "vim,tmux" is not a list: set names, such as image_builder_packages: [vim, tmux]'
NO_KIWI = (
    "/opt/kiwi does not run: install kiwi and what its builds need (on Debian: kiwi, kiwi-systemdeps), "
    "or set its path with kiwi=PATH"
)
NO_DESCRIPTION = "kiwi requires a description: set its directory on the host with description=DIR"
EMPTY = (
    "/srv/kiwi/leap contains no config.xml, config.kiwi or other .kiwi file on the host: "
    "specify the description's directory"
)


def no_image(name: str) -> str:
    """The problem of a name, which is given as JSON."""
    return f"{name} is not a name for an image: use letters, digits, dots and dashes, ending in .qcow2 or .raw"


def relative(path: str) -> str:
    """The problem of a path, which is given as JSON."""
    return f"{path} is not an absolute path: specify the absolute path of the directory"


def no_release(name: str) -> str:
    """The problem of a release, which is given as JSON."""
    return f"{name} is not a release: set its code name, such as release=bookworm"


def no_size(size: str) -> str:
    """The problem of a size, which is given as JSON."""
    return f"size {size} is not valid: set at least 1GiB, such as size=4GiB"


def no_mirror(url: str) -> str:
    """The problem of a mirror, which is given as JSON."""
    return f"{url} is not a mirror: set its URL, such as mirror=http://deb.debian.org/debian"


def no_package(name: str) -> str:
    """The problem of a package, which is given as JSON."""
    return f"{name} is not a package name: set names only, such as packages=vim,tmux"


def strange(option: str, builder: str) -> str:
    """The problem of an option that only the other builder has."""
    return f"{option} does not apply to {builder}: omit it, or choose the other builder"


@pytest.mark.parametrize(
    ("host", "settings", "found"),
    [
        ({}, {}, []),
        ({"user_uid": 1000}, {}, [ROOT]),
        ({}, {"image": "a.raw"}, []),
        ({}, {"image": "0_a-b.c.qcow2"}, []),
        ({}, {"image": "../x.qcow2"}, [no_image('"../x.qcow2"')]),
        ({}, {"image": "-x.qcow2"}, [no_image('"-x.qcow2"')]),
        ({}, {"image": "x.qcow"}, [no_image('"x.qcow"')]),
        ({}, {"image": ".qcow2"}, [no_image('".qcow2"')]),
        ({}, {"image": "xqcow2"}, [no_image('"xqcow2"')]),
        ({}, {"image": "x.qcow2\n"}, [no_image(r'"x.qcow2\n"')]),
        ({}, {"image": "a\"';$(id)\n.raw"}, [no_image(r'''"a\"';$(id)\n.raw"''')]),
        ({}, {"image": 7}, [no_image("7")]),
        ({}, {"dest": "images"}, [relative('"images"')]),
        ({}, {"dest": "~/images"}, [relative('"~/images"')]),
        ({}, {"dest": ""}, [relative('""')]),
        ({"dest": {"exists": False}}, {}, []),
        ({"dest": {"exists": False}}, {"dest": "images"}, [relative('"images"')]),
        ({"dest": {"exists": True, "isdir": False, "woth": True}}, {}, [DIRECTORY]),
        ({"dest": {"exists": True, "isdir": True, "woth": True}}, {}, [EVERYBODY]),
        ({"missing": ["sfdisk", "mkfs.ext4"], "packages": ["e2fsprogs", "fdisk"]}, {}, []),
        ({"missing": ["sfdisk", "mkfs.ext4"], "packages": ["e2fsprogs", "fdisk"]}, {"install": False}, [MISSING]),
        (
            {"missing": ["sfdisk", "mkfs.ext4"], "packages": ["e2fsprogs", "fdisk"], "os_family": "RedHat"},
            {},
            [MISSING],
        ),
        ({"os_family": "RedHat"}, {"install": False}, []),
        ({}, {"description": "/srv"}, [strange("description", "mmdebstrap")]),
        ({}, {"profiles": ["small"]}, [strange("profiles", "mmdebstrap")]),
        ({}, {"kiwi": "/opt/kiwi"}, []),
        ({"kiwi_runs": False, "descriptions": 0}, {}, []),
        ({"architecture": "aarch64"}, {}, [ARM]),
        ({}, {"release": ""}, [no_release('""')]),
        ({}, {"release": None}, [no_release("null")]),
        ({}, {"release": "Bookworm"}, [no_release('"Bookworm"')]),
        ({}, {"release": "bookworm\n"}, [no_release(r'"bookworm\n"')]),
        ({}, {"release": 12}, [no_release("12")]),
        ({}, {"size": "10TiB"}, []),
        ({}, {"size": "3"}, [no_size('"3"')]),
        ({}, {"size": "512MiB"}, [no_size('"512MiB"')]),
        ({}, {"size": "0GiB"}, [no_size('"0GiB"')]),
        ({}, {"size": "2GiB\n"}, [no_size(r'"2GiB\n"')]),
        ({}, {"mirror": "http://deb.debian.org/debian"}, []),
        ({}, {"mirror": "https://mirror/debian"}, []),
        ({}, {"mirror": "ftp://x"}, [no_mirror('"ftp://x"')]),
        ({}, {"mirror": "https://"}, [no_mirror('"https://"')]),
        ({}, {"mirror": "http://x main"}, [no_mirror('"http://x main"')]),
        ({}, {"mirror": "http://x\nhttp://y"}, [no_mirror(r'"http://x\nhttp://y"')]),
        ({}, {"packages": ["vim", "g++", "libc6-dev", "python3.11", "0ad"]}, []),
        ({}, {"packages": None}, []),
        ({}, {"packages": ["vim", "Vim", "-o", "a b"]}, [no_package('"Vim"'), no_package('"-o"'), no_package('"a b"')]),
        ({}, {"packages": ["vim\n", "x", 7]}, [no_package(r'"vim\n"'), no_package('"x"'), no_package("7")]),
        ({}, {"packages": "vim,tmux"}, [NO_LIST]),
        ({}, {"customize": "customize.sh"}, []),
        ({"customize_exists": False}, {}, []),
        ({"customize_exists": False}, {"customize": "customize.sh"}, [LOST]),
        (
            {"user_uid": 1, "architecture": "aarch64", "customize_exists": False},
            {"image": "x", "dest": "x", "release": "X", "size": "x", "mirror": "x", "packages": ["X"]}
            | {"customize": "x", "profiles": ["x"]},
            [
                *(ROOT, no_image('"x"'), relative('"x"'), strange("profiles", "mmdebstrap"), ARM),
                *(no_release('"X"'), no_size('"x"'), no_mirror('"x"'), no_package('"X"'), LOST),
            ],
        ),
    ],
)
def test_everything_that_prevents_an_image_of_debian_is_found_at_once(
    host: dict[str, t.Any], settings: dict[str, t.Any], found: list[str]
) -> None:
    assert problems(dataclasses.replace(DEBIAN, **settings), dataclasses.replace(HOST, **host)) == found


@pytest.mark.parametrize(
    ("host", "settings", "found"),
    [
        ({}, {}, []),
        ({}, {"profiles": ["small"]}, []),
        ({"architecture": "aarch64", "customize_exists": False}, {"size": "x"}, []),
        ({}, {"release": "bookworm"}, [strange("release", "kiwi")]),
        ({}, {"mirror": "ftp://x"}, [strange("mirror", "kiwi")]),
        ({}, {"keyring": "/x.gpg"}, [strange("keyring", "kiwi")]),
        ({}, {"packages": ["X"]}, [strange("packages", "kiwi")]),
        ({"customize_exists": False}, {"customize": "x"}, [strange("customize", "kiwi")]),
        ({"kiwi_runs": False}, {"kiwi": "/opt/kiwi"}, [NO_KIWI]),
        ({"descriptions": 0}, {"description": ""}, [NO_DESCRIPTION]),
        ({"descriptions": 0}, {}, [EMPTY]),
        (
            {"user_uid": 1, "kiwi_runs": False, "dest": {"exists": True, "isdir": True, "woth": True}},
            {"kiwi": "/opt/kiwi", "image": "x", "mirror": "x", "release": "x", "description": ""},
            [
                *(ROOT, no_image('"x"'), EVERYBODY, strange("release", "kiwi"), strange("mirror", "kiwi")),
                *(NO_KIWI, NO_DESCRIPTION),
            ],
        ),
    ],
)
def test_everything_that_prevents_an_image_of_kiwi_is_found_at_once(
    host: dict[str, t.Any], settings: dict[str, t.Any], found: list[str]
) -> None:
    assert problems(dataclasses.replace(KIWI, **settings), dataclasses.replace(HOST, **host)) == found


@pytest.mark.parametrize(
    ("settings", "code", "printed"),
    [
        ({}, 0, ""),
        (
            {"dest": "/srv/a\nb", "size": "'\"\n"},
            2,
            r"/srv/a\nb is not a directory: choose another" + "\n" + no_size(r'''"'\"\n"''') + "\n",
        ),
    ],
)
def test_each_problem_is_a_line(
    settings: dict[str, t.Any],
    code: int,
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    host = dataclasses.replace(HOST, dest={"exists": True, "isdir": not settings})
    given = {"settings": {**dataclasses.asdict(DEBIAN), **settings}, "host": dataclasses.asdict(host)}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(given)))
    assert check_settings.main() == code
    assert capsys.readouterr().out == printed


SCRIPT = Path(check_settings.__file__).parent / "locked_build.sh"
TASKS = yaml.safe_load((SCRIPT.parent.parent / "tasks/build.yml").read_text())
needs_programs = pytest.mark.skipif(not (shutil.which("bash") and shutil.which("flock")), reason="no bash or flock")


def build(folder: Path, command: str, *, rebuild: bool = False) -> subprocess.Popen[str]:
    """A run that builds an image in a folder with a command of the shell, which has the work directory as $1."""
    image, work = folder / "a.qcow2", folder / ".a.qcow2.build"
    options = ["--rebuild"] if rebuild else []
    # A shell cannot trap what is ignored when it starts, as by nohup.
    heard = ["env", "--default-signal=INT,HUP"]
    argv = [*heard, "bash", str(SCRIPT), *options, str(image), str(work), "bash", "-c", command, "bash", str(work)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def reached(path: Path) -> None:
    """Wait until there is such a file."""
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)


@needs_programs
def test_a_second_build_of_an_image_is_refused_and_leaves_the_first_alone(tmp_path: Path) -> None:
    """A job that is started twice, or from two controllers."""
    go = tmp_path / "go"
    with build(tmp_path, f"echo first > $1/a.qcow2; touch $1/ready; until [ -e {go} ]; do sleep 0.02; done") as first:
        reached(tmp_path / ".a.qcow2.build/ready")
        with build(tmp_path, "echo second > $1/a.qcow2") as second:
            assert "another run is building it in " in second.communicate()[1] and second.returncode == 1
        assert (tmp_path / ".a.qcow2.build/ready").exists() and not (tmp_path / "a.qcow2").exists()
        go.touch()
    assert first.returncode == 0 and (tmp_path / "a.qcow2").read_text() == "first\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.qcow2", "go"]


@needs_programs
def test_a_build_that_fails_leaves_the_image_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.qcow2").write_text("before")
    (tmp_path / ".a.qcow2.build/root").mkdir(parents=True)  # of a run that was killed
    old, new = tmp_path / ".a.qcow2.run.old", tmp_path / ".a.qcow2.run.new"
    for programs, age_s in ((old, 90_000), (new, 0)):
        programs.mkdir()
        os.utime(programs, (time.time() - age_s,) * 2)
    with build(tmp_path, "[ ! -e $1/root ] && echo half > $1/a.qcow2; exit 3", rebuild=True) as run:
        run.communicate()
    assert run.returncode == 3 and (tmp_path / "a.qcow2").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == [new.name, "a.qcow2"], "new: of a run that begins"


@needs_programs
def test_what_a_killed_script_still_builds_is_not_removed_under_it(tmp_path: Path) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    command = f"touch $1/ready; until [ -e {go} ]; do sleep 0.02; done; [ -e $1/ready ] && touch {done}"
    with build(tmp_path, command) as first:
        reached(tmp_path / ".a.qcow2.build/ready")
        first.kill()
    with build(tmp_path, "true") as second:
        assert "another run is building it" in second.communicate()[1]
    go.touch()
    reached(done)


@needs_programs
@pytest.mark.parametrize("rebuild", [False, True])
def test_an_image_that_another_run_has_built_meanwhile_is_replaced_only_where_that_is_asked(
    tmp_path: Path, *, rebuild: bool
) -> None:
    (tmp_path / "a.qcow2").write_text("first\n")
    with build(tmp_path, "echo second > $1/a.qcow2", rebuild=rebuild) as run:
        printed, _errors = run.communicate()
    assert (run.returncode, printed) == (0, "" if rebuild else "built by another run\n")
    assert (tmp_path / "a.qcow2").read_text() == ("second\n" if rebuild else "first\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.qcow2"]


def test_the_role_knows_what_the_script_prints() -> None:
    """A run that has built nothing has changed nothing."""
    [block] = [task for task in TASKS if "block" in task]
    [task] = [one for one in block["block"] if one["name"] == "Build"]
    assert f'echo "{task["changed_when"].split(chr(39))[1]}"' in SCRIPT.read_text()


@needs_programs
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda one: one.name)
def test_a_run_that_is_stopped_ends_its_build_before_it_removes_what_that_works_with(
    tmp_path: Path, number: signal.Signals
) -> None:
    last = f"sleep 1; [ -e $1/ready ] && touch {tmp_path}/last"  # a program that takes a while to end
    with build(tmp_path, f"trap '' TERM; ({last}) & touch $1/ready; exec sleep 60") as run:
        reached(tmp_path / ".a.qcow2.build/ready")
        run.send_signal(number)
        run.communicate(timeout=20)
    assert run.returncode == 143
    assert [path.name for path in tmp_path.iterdir()] == ["last"], "not removed under it"
