"""Salt's cloud controller tutorial, its commands in its order, as playbooks: one guest, judged by virsh and its
display's greeting.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    IMAGES,
    hypervisors,
)
from ansible_collections.corral.virt.tests.lab.test_commands import HOSTS, Commands, greeting

# What each command does is asked by itself in test_commands.
pytestmark = [pytest.mark.lab, pytest.mark.deep]

HERE = Path(__file__).parent
GUEST, IMAGE = "centos1", "centos.qcow2"


@pytest.fixture(scope="module")
def lab() -> Iterator[Commands]:
    with hypervisors("tutorial", hosts=2) as made:
        yield Commands(made.name)


def test_the_tutorial_from_its_first_command_to_its_last(lab: Commands) -> None:
    # salt-run virt.host_info; virt.list: two hypervisors without guests.
    result = lab.do("host_info")
    assert all(host in result for host in HOSTS)
    assert GUEST not in lab.do("list")

    # The image comes from the controller, to both hosts.
    small = lab.run(sys.executable, HERE / "lab.py", "small-image", "--name", lab.name).strip()
    lab.play({"corral.virt.virt_image": {"name": IMAGE, "src": small}}, hosts="hyper")
    assert all(IMAGE in lab.on(host, f"ls {IMAGES}") for host in HOSTS)

    # virt.init NAME CPUS MEMORY IMAGE enable_vnc=True start=False
    lab.do(
        "create",
        guest=GUEST,
        vcpus=2,
        memory="96MiB",
        image=IMAGE,
        state="present",
        graphics={"type": "vnc"},
        wait_for_ip="none",
    )
    ((here, state),) = lab.state(GUEST).items()
    assert state.startswith("shut off")
    (there,) = {*HOSTS} - {here}
    backing = lab.on(here, f"qemu-img info -U {IMAGES}/{GUEST}-system.qcow2")
    assert re.search(rf"backing file: {IMAGES}/centos\.[0-9a-f]{{12}}\.qcow2", backing), "it stands on the image"
    assert lab.on(
        here, f"virsh dominfo {GUEST} | awk '/^CPU\\(s\\)/ {{print $2}} /^Max memory/ {{print $3}}'"
    ).split() == ["2", "98304"]

    # virt.list; virt.query
    assert re.search(rf"{here}.* {GUEST}", lab.do("list"))
    assert "State: shutdown" in lab.do("query", format="seed")

    # virt.start, and everything else that is done to its power
    lab.do("start", guest=GUEST)
    assert lab.state(GUEST) == {here: "running (booted)"}
    lab.do("pause", guest=GUEST)
    assert lab.state(GUEST) == {here: "paused (user)"}
    lab.do("resume", guest=GUEST)
    lab.do("reset", guest=GUEST)
    assert lab.state(GUEST) == {here: "running (unpaused)"}

    # virt.query tells where its screen is: the command works as it is printed.
    result = lab.run(
        "ansible-playbook", "corral.virt.query", *lab.ask_nobody, "-e", f"guest={GUEST}", "-e", "format=seed"
    )
    assert re.search(rf"Graphics: vnc - {here}:59\d\d\n", result)
    tunnel, port = re.findall(r"Open: (ssh -L .*); vncviewer localhost:(\d+)", result)[0]
    with subprocess.Popen([*shlex.split(tunnel), "sleep 20"], stdin=subprocess.DEVNULL) as ssh:
        try:
            until(lambda: greeting(int(port)) == b"RFB 003.008\n")
        finally:
            ssh.terminate()

    # virt.migrate NAME [HOST]
    lab.do("migrate", guest=GUEST, to=there)
    assert [*lab.state(GUEST)] == [there] and lab.state(GUEST)[there].startswith("running")
    assert f"{GUEST}-system.qcow2" not in lab.on(here, f"ls {IMAGES}")
    lab.do("migrate", guest=GUEST)
    assert [*lab.state(GUEST)] == [here]

    # virt.purge, and nothing of it is left; the image is no guest's.
    lab.do("force_off", guest=GUEST)
    assert lab.state(GUEST) == {here: "shut off (destroyed)"}
    lab.do("purge", guest=GUEST)
    assert lab.state(GUEST) == {}
    for host in HOSTS:
        assert GUEST not in lab.on(host, f"ls -a {IMAGES}") and IMAGE in lab.on(host, f"ls {IMAGES}")
    assert GUEST not in lab.do("list")
