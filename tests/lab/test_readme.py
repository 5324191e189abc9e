"""The README's lines on bare Debian 12 and 13, as a user with sudo, with the collection from its tarball."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.lab.hypervisors import HERE, ROOT, Hypervisors

pytestmark = pytest.mark.lab

NAME = "readme"
RELEASES = {"hyper1": "3.11", "hyper2": "3.13"}  # what their Python is
README = (ROOT / "README.md").read_text()
LINES = README.split("On a controller with Debian 12 or newer:\n\n```sh\n")[1].split("```")[0]
# A user who answers questions with yes, and an index of packages that the hosts reach.
USER = r"""
apt-get -qq update && apt-get -qq install sudo < /dev/null > /dev/null
useradd --create-home --shell /bin/bash ada && echo 'ada ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ada
echo 'APT::Get::Assume-Yes "true";' > /etc/apt/apt.conf.d/90yes
printf '[global]\nno-index = true\nfind-links = /opt/wheels\n' > /etc/pip.conf
"""
INVENTORY = """{hyper: {hosts: {self: {ansible_connection: local, virt_uri: 'test:///default'}}}}"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hypervisors]:
    """Bare hosts, with the tarball and the packages of an index."""
    made, place = Hypervisors(NAME), tmp_path_factory.mktemp("readme")
    here = (sys.executable, HERE / "lab.py")
    made.run(*here, "down", "--name", NAME)
    try:
        made.run(*here, "up", "--name", NAME, "--no-image", "--hosts", "2", "--host", "hyper2=trixie", timeout_s=900)
        made.run("ansible-galaxy", "collection", "build", "--output-path", place, ROOT)
        (tarball,) = place.glob("*.tar.gz")
        for host, python in RELEASES.items():
            wheels = place / python
            pip = (sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", "--python-version", python)
            made.run(*pip, "-d", wheels, "ansible-core>=2.19", timeout_s=600)
            opt = Path("/var/lib/corral-lab") / NAME / host / "root/opt"
            shutil.copytree(wheels, opt / "wheels")
            shutil.copy(tarball, opt)
            made.on(host, USER)
        yield made
    finally:
        made.run(*here, "down", "--name", NAME)


def as_user(lab: Hypervisors, host: str, lines: str) -> str:
    """What a login shell prints."""
    return lab.on(host, "su - ada -c 'bash -e' 2>&1", given=lines)


@pytest.mark.parametrize("host", RELEASES)
def test_the_lines_of_the_readme_install_it(lab: Hypervisors, host: str) -> None:
    lines = LINES.replace("install corral.virt", "install --offline /opt/corral-virt-*.tar.gz")
    assert lines != LINES
    (Path("/var/lib/corral-lab") / NAME / host / "root/home/ada/hosts.yml").write_text(INVENTORY)
    try_it = ". ~/corral/bin/activate\nansible-playbook -i hosts.yml corral.virt.list\n"
    shown = as_user(lab, host, f"{lines}\n{try_it}")
    assert not re.search(r"(?mi)^(traceback|\[?error)", shown), shown
    assert re.search(r"self\n +running\n +test\n", shown), shown[-2000:]
    assert "Building wheel" not in shown, "nothing is compiled"


def test_the_distributions_own_ansible_is_refused_in_a_sentence(lab: Hypervisors) -> None:
    as_user(lab, "hyper1", "sudo apt install --no-install-recommends ansible-core > /dev/null 2>&1")
    for command in (
        "ansible-playbook -i hosts.yml corral.virt.list",
        "ansible -i hosts.yml all -m corral.virt.virt_state",
    ):
        shown = as_user(lab, "hyper1", f"{command} || echo ended with $?")
        assert "corral.virt requires ansible-core 2.19 or newer" in shown and "ended with 1" in shown, shown
        assert "Traceback" not in shown and "cannot import" not in shown and len(shown.splitlines()) <= 4


def test_what_the_readme_links_is_in_the_tarball(lab: Hypervisors) -> None:
    listed = lab.on("hyper1", "tar tzf /opt/corral-virt-*.tar.gz").splitlines()
    links = set(re.findall(r"\]\((?!https?:)([^)#]+)\)", README))
    assert (
        links and sorted(link for link in links if not any(f"{path}/".startswith(f"{link}/") for path in listed)) == []
    )
