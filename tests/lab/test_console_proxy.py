"""The console behind nginx, configured as the guide says: certificates of users log them in."""

from __future__ import annotations

import functools
import json
import re
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.console import Site
from ansible_collections.corral.virt.tests.lab.hypervisors import ROOT, hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Site("proxy")
on = functools.partial(LAB.on, "hyper1")
NAME = "console.example.org"
CERTIFICATES = f"""
set -e; cd /etc/nginx
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=users -keyout users-ca.key -out users-ca.crt -days 2
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN={NAME} -keyout console.key -out console.crt -days 2
for name in dora eve; do
  openssl req -newkey rsa:2048 -nodes -subj /O=Example/CN=$name -keyout $name.key -out $name.csr
  openssl x509 -req -in $name.csr -CA users-ca.crt -CAkey users-ca.key -CAcreateserial -out $name.crt -days 2
done
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=alice -keyout stranger.key -out stranger.crt -days 2
"""


def configuration() -> str:
    """What the guide shows."""
    text = (ROOT / "docs/docsite/rst/guide_console.rst").read_text()
    (block,) = re.findall(r"\.\. code-block:: nginx\n\n((?:    .*\n|\n)+)", text)
    return "\n".join(line.removeprefix("    ") for line in block.splitlines())


@pytest.fixture(scope="module", autouse=True)
def proxy() -> Iterator[None]:
    with hypervisors(LAB.name):
        on(
            "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends nginx curl"
        )
        on(CERTIFICATES)
        on("rm -f /etc/nginx/sites-enabled/default; cat >/etc/nginx/conf.d/console.conf", given=configuration())
        given: dict[str, t.Any] = {
            "console_names": [NAME],
            "console_listen": "127.0.0.1",
            "console_proxy": {"user": "www-data", "user_header": "X-User", "groups_header": "X-Groups"},
            "console_policy": [{"who": "user:dora", "may": "start", "guests": "web*"}],
        }
        LAB.install(**given)
        assert not re.findall(r"changed=[1-9]", LAB.install(**given)), "a second run changes nothing"
        on("nginx -t && systemctl restart nginx")
        yield


def curl(path: str, *words: str, user: str = "") -> tuple[int, str]:
    """Status and content."""
    certificate = f"--cert /etc/nginx/{user}.crt --key /etc/nginx/{user}.key" if user else ""
    command = f"curl -sk --resolve {NAME}:443:127.0.0.1 {certificate} -w '\\n%{{http_code}}' {' '.join(words)}"
    content, _line, status = on(f"{command} https://{NAME}{path}").rpartition("\n")
    return int(status), content


def me(*words: str, user: str = "") -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(curl("/api/me", *words, user=user)[1]))


def test_a_certificate_logs_its_user_in() -> None:
    assert curl("/api/login/proxy", "-c /tmp/dora", user="dora")[0] == 303
    found = me("-b /tmp/dora")
    assert (found["user"], found["groups"], found["may"]) == ("dora", [], ["view", "start"])
    live = f"curl -skN --resolve {NAME}:443:127.0.0.1 -b /tmp/dora --max-time 5 https://{NAME}/api/events"
    assert on(f"{live} | head -n 1") == "retry: 2000", "live state comes through at once"


def test_nobody_says_who_they_are() -> None:
    """The header of the browser is replaced, and elsewhere nobody reads it."""
    assert curl("/api/login/proxy", "-c /tmp/eve -H 'X-User: dora' -H 'X-Groups: admins'", user="eve")[0] == 303
    assert me("-b /tmp/eve")["user"] == "eve" and me("-b /tmp/eve")["groups"] == []
    assert me("-H 'X-User: dora'") == me("-H 'X-User: dora'", user="eve") == {}
    assert curl("/api/login/proxy", "-H 'X-User: dora'")[0] == 403
    assert curl("/api/login/proxy", user="stranger")[0] in (400, 403), "nobody has signed that certificate"


def test_only_the_proxy_reaches_its_socket() -> None:
    ask = "curl -s --unix-socket /run/corral-console-jobs/proxy -H 'X-User: dora' http://x/api/login/proxy"
    for user in ("corral-console", "corral-viewer", "nobody"):
        on(f"runuser -u {user} -- {ask}", ok=False)
    assert "403" not in on(f"runuser -u www-data -- {ask} -i")
    other = "curl -s --unix-socket /run/corral-console-jobs/socket http://x/api/me"
    for user in ("www-data", "corral-viewer", "nobody"):
        on(f"runuser -u {user} -- {other}", ok=False)
    assert on(f"runuser -u corral-console -- {other}") == "{}"
    on(other, ok=False)  # even root is not the web process


def test_services_are_confined() -> None:
    """Who reads what, whatever the processes do."""
    for path in ("/etc/corral-console-jobs/config.json", "/var/lib/corral-console-jobs/ticket.key"):
        on(f"runuser -u corral-console -- cat {path}", ok=False)
    on("runuser -u corral-console -- virsh -c qemu:///system list", ok=False)
    for unit in ("corral-console", "corral-console-jobs"):
        said = on(f"systemd-analyze security --no-pager {unit}.service | tail -1")
        exposure = re.search(r"level for \S+: ([0-9.]+)", said)
        assert exposure and float(exposure[1]) < 2, said
