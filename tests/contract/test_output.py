"""What a run prints: reports in their formats, in a file or alone on standard output; little of what is well."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._report import report_data
from ansible_collections.corral.virt.tests.contract.play import Play, deep, defaults
from ansible_collections.corral.virt.tests.contract.test_commands import Commands
from ansible_collections.corral.virt.tests.tools import payload, preloaded

pytestmark = pytest.mark.slow

ALONE = {"ANSIBLE_STDOUT_CALLBACK": "corral.virt.report"}
TERSE = {"ANSIBLE_STDOUT_CALLBACK": "corral.virt.terse"}
NAMES = "[.hosts[] | {(.name): [.guests[]?.name]}] | add"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("output"))


def run(
    commands: Commands, action: str, *flags: str, env: t.Mapping[str, str] | None = None, **arguments: t.Any
) -> subprocess.CompletedProcess[str]:
    """A playbook with what it printed, lines and all."""
    words = ["ansible-playbook", "-i", "hosts.yml", f"corral.virt.{action}", "-e", json.dumps(arguments), *flags]
    environment = defaults(CORRAL_VIRT_KNOWN_HOSTS=str(commands.known), **(ALONE if env is None else env))
    return preloaded.run(words, cwd=commands.place, env=environment, timeout_s=120, given=None)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_a_report_can_be_piped_into_jq(commands: Commands) -> None:
    command = f"ansible-playbook -i hosts.yml corral.virt.query -e format=json | jq -c '{NAMES}'"
    done = subprocess.run(
        command, shell=True, cwd=commands.place, env=defaults(**ALONE), capture_output=True, text=True, check=False
    )
    assert json.loads(done.stdout) == {"h1": ["web1", "web2"], "h2": ["db1"]} and done.stderr == "", done


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_line_of_the_readme_for_programs(commands: Commands) -> None:
    (line,) = re.findall(r"`([^`]*\| jq [^`]*)`", (payload.ROOT / "README.md").read_text())
    env = defaults(ANSIBLE_INVENTORY=str(commands.place / "hosts.yml"))
    done = subprocess.run(line, shell=True, cwd=commands.place, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ('"h1"\n"h2"\n', ""), done


@pytest.mark.parametrize("reader", ["true", "head -1"])
@pytest.mark.parametrize("action", ["query", deep("list")])
def test_a_run_outlives_its_reader(commands: Commands, action: str, reader: str) -> None:
    """Else Ansible's thread that prints ends, and the run waits for it for ever."""
    command = f"ansible-playbook -i hosts.yml corral.virt.{action} 2>err; echo $? >rc) | {reader}"
    done = subprocess.run(
        ["timeout", "--kill-after=5", "90", "sh", "-c", f"({command}"], cwd=commands.place, env=defaults(), check=False
    )
    assert (done.returncode, (commands.place / "rc").read_text()) == (0, "0\n"), (commands.place / "err").read_text()


@pytest.mark.parametrize(
    ("callback", "more"), [({}, ""), deep({}, "-vvvv"), (ALONE, "")]
)  # less and more than Python holds
def test_a_run_whose_output_is_full_ends_with_an_error(
    commands: Commands, callback: t.Mapping[str, str], more: str
) -> None:
    command = f"ansible-playbook -i hosts.yml corral.virt.start -e guest=web2 --check {more}"
    log = commands.place / "full.log"
    log.unlink(missing_ok=True)

    def ended(outputs: str) -> subprocess.CompletedProcess[str]:
        words = ["timeout", "--kill-after=5", "90", "sh", "-c", f"{command} {outputs}"]
        more = {"PYTHONUNBUFFERED": "", "ANSIBLE_LOG_PATH": str(log), "CORRAL_VIRT_KNOWN_HOSTS": str(commands.known)}
        env = defaults(**callback, **more)
        return subprocess.run(words, cwd=commands.place, env=env, check=False, capture_output=True, text=True)

    done = ended("> /dev/full")
    told = "[ERROR]: standard output is incomplete: No space left on device. The run was not stopped; "
    assert (done.returncode, done.stderr.count("\n")) == (120, 1) and done.stderr.startswith(told), done
    assert callback or "PLAY RECAP" in log.read_text(), "it goes on to its end"
    assert ended("> /dev/full 2>&1").returncode == 120
    assert ended("> out.txt").returncode == 0 and "start web2" in (commands.place / "out.txt").read_text()


def test_only_the_report_is_printed(commands: Commands) -> None:
    kinds_of = {"list": {"guests"}, "host_info": {"cpus", "pools"}, "pools": {"pools"}, "volumes": {"volumes"}}
    for action, kinds in kinds_of.items():
        result = run(commands, action, format="json")
        report = json.loads(result.stdout)
        assert (report["version"], report["kind"], result.returncode, result.stderr) == (1, action, 0, "")
        assert [host["name"] for host in report["hosts"]] == ["h1", "h2"] and kinds <= set(report["hosts"][0])
    assert run(commands, "list").stdout == "h1\n  running\n    web1\n  shutdown\n    web2\nh2\n  running\n    db1\n"
    table = run(commands, "query", format="table", guest="web2").stdout.splitlines()
    assert table[0].startswith("h1  CPU  ["), table
    cells = table[2].split()
    assert (*cells[:2], cells[-1]) == ("web2", "shutdown", "front"), table
    assert run(commands, "start", "--check", guest="web2").stdout == "h1\n  start web2\n", "steps are a report, too"
    given = {"host": "h1", "volume": "data.qcow2", "size": "1GiB"}
    told = json.loads(run(commands, "create_volume", "--check", format="json", env=None, **given).stdout)
    steps = "h1\n  create volume data.qcow2 of pool default (qcow2, 1GiB)"
    assert (told["kind"], told["text"], told["hosts"], told["problems"]) == ("create_volume", steps, [], [])


def test_failures_go_elsewhere_and_the_exit_code_stays(commands: Commands) -> None:
    result = run(commands, "query", format="json", guest="nobody")
    told = "cannot find nobody: none of h1, h2 has it"
    assert (
        result.returncode == 2
        and result.stderr.startswith(f"h1: {told}; to see all: ")
        and result.stderr.count("\n") == 1
    )
    assert json.loads(result.stdout)["problems"] == [
        {"host": None, "object": "nobody", "problem": told, "remedy": "to see all: ansible-playbook corral.virt.list"}
    ]
    assert run(commands, "query", format="table", guest="nobody").stdout == ""
    other = commands.place / "h2.xml"
    text = other.read_text()
    other.unlink()
    try:
        result = run(commands, "query", format="json")
    finally:
        other.write_text(text)
    assert json.loads(result.stdout)["hosts"][1] == {"name": "h2", "reached": False}
    assert (
        result.returncode == 2
        and result.stderr.startswith("h2: cannot connect to test://")
        and result.stderr.count("\n") == 1
    )


PROBLEMS: list[tuple[str, dict[str, t.Any], list[tuple[str | None, str, str, str | None]]]] = [
    ("start", {"guest": "nobody"}, [(None, "nobody", "cannot find nobody: none of ", "to see all: ansible-playbook ")]),
    ("start", {"guest": "wbe1"}, [(None, "wbe1", "cannot find wbe1: none of ", "did you mean web1 on h1")]),
    (
        "start",
        {"size": 3},
        [
            (None, "size", "size: start does not take it; it belongs to ", None),
            (None, "guest", "guest: start requires a guest or a tag", "write -e guest=NAME"),
        ],
    ),
    (
        "purge",
        {"guest": "web*", "confirm": 3},
        [(None, "run", "purge would affect 2 guests, not 3", "to confirm: -e confirm=2")],
    ),
    ("purge", {"guest": "web*"}, []),
    ("pause", {"guest": "web2"}, [(None, "web2", "cannot pause web2: it is off on h1", "start it: ansible-playbook ")]),
    ("rename", {"guest": "web1", "to": "db1"}, [(None, "web1", "cannot rename web1 to db1: ", "choose another name")]),
    (
        "create",
        {"guest": "w9", "vcpus": "many", "image": "x.qcow2"},
        [(None, "w9", "vcpus of w9: must be a whole number", None)],
    ),
    ("migrate", {"guest": "web1", "to": "h9"}, [(None, "to", "to: h9 is not a host of ", "choose one of h1, h2")]),
    ("start", {"guest": "web1", "virt_group": "none"}, [(None, "hosts", "the run ended before its end", None)]),
    (
        "eject",
        {"guest": "web2"},
        [
            (
                "h1",
                "web2",
                "cannot eject the medium of disk cd of web2: it has no drive of that name",
                "to see its drives: ",
            )
        ],
    ),
    ("purge", {"guest": "nobody", "missing_ok": True}, []),
    ("start", {"guest": "web1,web2"}, []),
]


@pytest.mark.parametrize(("action", "arguments", "problems"), PROBLEMS, ids=str)
def test_programs_read_what_failed(
    commands: Commands,
    action: str,
    arguments: dict[str, t.Any],
    problems: list[tuple[str | None, str, str, str | None]],
) -> None:
    """One document whatever happens; standard error has the same for people."""
    result = run(commands, action, "--check", format="json", **arguments)
    told = json.loads(result.stdout)
    assert (told["version"], told["kind"], bool(result.returncode)) == (1, action, bool(problems)), result
    assert len(told["problems"]) == len(problems)
    for found, (host, what, problem, remedy) in zip(told["problems"], problems, strict=True):
        assert (found["host"], found["object"]) == (host, what) and found["problem"].startswith(problem), found
        assert (found["remedy"] or "").startswith(remedy or "") and bool(found["remedy"]) == bool(remedy), found


def test_programs_read_each_item_that_failed_once_and_nothing_that_a_playbook_expects(commands: Commands) -> None:
    fails: dict[str, t.Any] = {"ansible.builtin.fail": {"msg": "cannot make {{ item | default('it') }}; wait"}}
    tasks = [
        {**fails, "ignore_errors": True},
        {
            "corral.virt.virt_state": {"domains": [{"name": "nobody", "state": "running"}], "uri": "{{ virt_uri }}"},
            "ignore_errors": True,
        },
        {**fails, "ignore_errors": True, "loop": ["x"]},
        {**fails, "loop": ["a", "b"]},
    ]
    (commands.place / "own.yml").write_text(json.dumps([{"hosts": "h1", "gather_facts": False, "tasks": tasks}]))
    words = ["ansible-playbook", "-i", "hosts.yml", "own.yml", "-e", "format=json"]
    done = preloaded.run(words, cwd=commands.place, env=defaults(**ALONE), timeout_s=120, given=None)
    told = json.loads(done.stdout)
    assert done.returncode == 2 and told["kind"] == "own"
    assert [(one["host"], one["problem"], one["remedy"]) for one in told["problems"]] == [
        ("h1", "cannot make a", "wait"),
        ("h1", "cannot make b", "wait"),
    ]


def test_programs_read_what_became_of_each_guest(commands: Commands) -> None:
    """Also of those beside one that failed; whoever reads no document is told how to get one."""
    result = run(commands, "start", "--check", format="json", guest="web2,db1")
    hosts = json.loads(result.stdout)["hosts"]
    shown = {
        guest["name"]: (host["name"], guest["changed"], guest["steps"]) for host in hosts for guest in host["guests"]
    }
    assert shown == {"web2": ("h1", True, ["start web2"]), "db1": ("h2", False, [])}
    assert "text" not in json.loads(run(commands, "start", "--check", format="json", guest="web2").stdout)
    assert (
        "web1: it has no serial console"
        in json.loads(run(commands, "console", format="json", guest="web1").stdout)["text"]
    )
    refused = run(commands, "start", "--check", env={}, format="json", guest="web2")
    assert (
        refused.returncode == 2 and "set ANSIBLE_STDOUT_CALLBACK=corral.virt.report" in refused.stdout + refused.stderr
    )


def test_a_report_is_written_as_a_whole(commands: Commands) -> None:
    out = commands.place / "hosts.json"
    result = run(commands, "query", "--check", env={}, format="json", out="hosts.json")
    assert f"the report would be in {out}" in result.stdout and not out.exists()
    out.write_text("somebody reads this")
    with out.open() as reader:
        result = run(commands, "query", env={}, format="json", out="hosts.json")
        assert reader.read() == "somebody reads this"
    assert (
        f"the report is in {out}" in result.stdout
        and '"version"' not in result.stdout
        and result.stdout.count("failed=0") == 2
    )
    assert json.loads(out.read_text())["kind"] == "query"
    assert [path.name for path in commands.place.iterdir() if path.name.startswith(".corral")] == []
    result = run(commands, "query", format="json", out="hosts.json")
    assert result.stdout == "" and "the report is in" in result.stderr


@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("no/file", "is not a directory that you can write to"),
        (".", "it is a directory; name a file in it"),
        ("device", "it is not a file; to print it: ANSIBLE_STDOUT_CALLBACK=corral.virt.report"),
    ],
)
def test_a_report_that_cannot_be_written_is_red(commands: Commands, out: str, why: str) -> None:
    """`/dev/stdout` above all: it would be replaced."""
    device = commands.place / "device"
    if not device.is_symlink():
        device.symlink_to("/dev/null")
    for flags in ([], ["--check"]):
        result = run(commands, "list", *flags, out=out)
        assert result.returncode == 2 and why in result.stderr and result.stdout == ""
    assert device.readlink() == Path("/dev/null")


ODD: list[t.Any] = [[{"name": "web1"}], "web1", None]
NO_NUMBERS = [float("inf"), float("nan"), "1", True]


@pytest.mark.parametrize("form", ["seed", "table", "json"])
def test_an_answer_that_cannot_be_read_is_red(tmp_path: Path, form: str) -> None:
    """The others' are shown all the same."""
    play = Play(tmp_path)
    play.hosts(hyper={"h1": {}})
    good = {"domains": [{"name": "web1", "state": "running"}]}
    results = {"good": good, **{f"odd{number}": {"domains": odd} for number, odd in enumerate(ODD)}}
    report = {"kind": "list", "results": results, "group": [*results], "format": form}
    result = play.run({"corral.virt.virt_report": report, "register": "told", "ignore_errors": True})["h1"]
    assert result["failed"] and result["msg"].startswith("the answer of odd0, odd1, odd2 cannot be read")
    assert "web1" in result["text"] and "good" in result["text"]


@pytest.mark.parametrize("number", NO_NUMBERS, ids=str)
def test_what_is_no_number_is_an_answer_that_cannot_be_read(number: t.Any) -> None:
    """JSON knows no infinity: programs that read the report would break."""
    assert report_data.unreadable("query", {"h1": {"host": {"memory_mib": number}, "domains": []}}, None) == ["h1"]
    assert report_data.unreadable("query", {"h1": {"host": {"memory_mib": 1.5}, "domains": []}}, None) == []


def test_text_only_reports_have_no_other_format(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.hosts(hyper={"h1": {}})
    result = play.run(
        {
            "corral.virt.virt_report": {"kind": "steps", "results": {}, "group": [], "format": "json"},
            "register": "told",
            "ignore_errors": True,
        }
    )
    kinds = ", ".join(report_data.KINDS)
    assert result["h1"]["msg"] == f"format: steps is text only; omit it, or choose one of {kinds}"


def test_a_report_stands_below_its_banner(commands: Commands) -> None:
    """As the checkout's own ansible.cfg has it, and with Ansible's defaults."""
    assert "stdout_callback = corral.virt.terse" in (payload.ROOT / "ansible.cfg").read_text()
    for env in (TERSE, {}):
        lines = run(commands, "list", env=env).stdout.splitlines()
        banner = next(number for number, line in enumerate(lines) if line.startswith("TASK [Print the report]"))
        assert lines[banner + 1 : banner + 4] == ["h1", "  running", "    web1"]


def test_what_is_well_is_not_printed(commands: Commands) -> None:
    """Of a role on two hosts with nothing to do: at most five lines for each host; with -v all of it."""
    done = run(commands, "start", env=TERSE, guest="web1")
    assert done.returncode == 0 and "ok: [" not in done.stdout and "included:" not in done.stdout
    assert re.findall(r"^TASK \[(.*?)\]", done.stdout, re.MULTILINE) == [
        "Bring the guests to the state",
        "Print what was done",
    ]
    wish = {
        "vcpus": "2",
        "memory": "512MiB",
        "interfaces": [],
        "domain": {"disks": []},
        "guests_seed": "false",
        "state": "present",
    }
    same = run(commands, "create", env=TERSE, guest="web1", **wish)
    assert same.returncode == 0 and re.findall(r"changed=\d+", same.stdout) == ["changed=0"] * 2, same.stdout
    role = same.stdout.partition("PLAY RECAP")[0].partition("TASK")[2].splitlines()
    assert len(role) <= 10, same.stdout
    everything = run(commands, "create", "-v", env=TERSE, guest="web1", **wish).stdout
    assert "ok: [h1]" in everything and "included:" in everything


@pytest.mark.parametrize(
    ("action", "arguments", "why"),
    [
        ("start", {"guest": "web3"}, "cannot find web3: none of h1, h2 has it"),
        (
            "create",
            {"guest": "new"},
            "no hypervisor has it, and creating it requires vcpus and memory, for example vcpus=2 memory=2GiB",
        ),
        (
            "create",
            {"guest": "new", "vcpus": 1, "memory": 64, "image": "/a.qcow2"},
            "image of new: '/a.qcow2' is a path",
        ),
    ],
)
def test_a_failure_is_told_once(commands: Commands, action: str, arguments: dict[str, t.Any], why: str) -> None:
    done = run(commands, action, env=TERSE, **arguments)
    assert done.returncode == 2 and (done.stdout + done.stderr).count(why) == 1, done.stdout + done.stderr
    assert re.search(r"^fatal: \[h1\]: ", done.stdout, re.MULTILINE) and "Origin:" not in done.stdout + done.stderr


FAILING: list[dict[str, t.Any]] = [
    {"ansible.builtin.command": "sh -c 'echo out; echo err >&2; false'", "ignore_errors": True},
    {"ansible.builtin.fail": {"msg": "bad {{ item }}"}, "loop": [1, 2], "when": "item == 1", "ignore_errors": True},
    {"ansible.builtin.debug": {"msg": "told"}},
    {"ansible.builtin.debug": {"msg": "to come"}, "changed_when": True},
    {"ansible.builtin.command": "true"},
    {"ansible.builtin.command": "echo {{ item }}", "loop": [1, 2], "changed_when": "item == 2"},
    {"ansible.builtin.assert": {"that": ["false"], "fail_msg": ["one", "two"], "quiet": True}},
]


def test_failures_of_all_sorts(tmp_path: Path) -> None:
    play = [
        {
            "hosts": "localhost",
            "gather_facts": False,
            "tasks": [{"name": f"t{place}", **task} for place, task in enumerate(FAILING)],
        }
    ]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    env = {**defaults(**TERSE), "ANSIBLE_LOCALHOST_WARNING": "0"}
    words = [
        "ansible-playbook",
        "-i",
        "localhost,",
        "-c",
        "local",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
        "play.yml",
    ]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    body = [line.rstrip("*").rstrip() for line in done.stdout.partition("PLAY RECAP")[0].splitlines() if line]
    assert body[1:] == [
        "TASK [t0]", "fatal: [localhost]: non-zero return code", "  err", "  out", "...ignoring",
        "TASK [t1]", "failed: [localhost] (item=1): bad 1", "...ignoring",
        "TASK [t2]", "ok: [localhost]: told",
        "TASK [t3]", "changed: [localhost]: to come",
        "TASK [t4]", "changed: [localhost]",
        "TASK [t5]", "changed: [localhost] => (item=2)",
        "TASK [t6]", "fatal: [localhost]: one", "  two",
    ], done.stdout  # fmt: skip
    assert done.returncode == 2 and done.stderr == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_colours_are_for_terminals(commands: Commands, terminal: bool) -> None:
    env = {name: value for name, value in defaults(TERM="xterm").items() if name != "ANSIBLE_NOCOLOR"}
    words = ["ansible-playbook", "-i", "hosts.yml", "corral.virt.list", "-e", "format=table"]
    ours, theirs = pty.openpty() if terminal else os.pipe()
    with subprocess.Popen(words, cwd=commands.place, env=env, stdout=theirs, stderr=subprocess.DEVNULL):
        os.close(theirs)
        printed = b""
        try:
            while read := os.read(ours, 65536):
                printed += read
        except OSError:  # so ends a terminal
            pass
        os.close(ours)
    assert b"web1" in printed and (re.search(rb"\x1b\[0;32mrunning\x1b\[0m", printed) is not None) == terminal, printed
