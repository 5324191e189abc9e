"""The web console with thousands of guests: both of its processes as they run on a machine, and a browser.

The hypervisors are libvirt's own test drivers inside the web process. What they need alone is measured in a process of
its own, and taken off.
"""

from __future__ import annotations

import contextlib
import getpass
import http.client
import json
import os
import re
import socket
import ssl
import statistics
import subprocess
import sys
import time
import typing as t
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from ansible_collections.corral.virt.tests.bench.inventory import Cloud
from ansible_collections.corral.virt.tests.bench.place import BUILD, ROOT, Failed, say
from ansible_collections.corral.virt.tests.bench.row import Row
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import Patience

HOSTS = 0
CLOUD_IMAGE = False
ROLES: tuple[str, ...] = ()

SIZES = ((10, 50), (50, 50), (100, 50), (100, 100))
TARGETED = (100, 50)
LIMIT = "limit"
# What is measured, its unit and its limit.
LIMITS = {
    "first paint": ("s", 1.0),
    "all guests there": ("s", None),
    "event to screen": ("s", 0.5),
    "web process, memory": ("MB", 150.0),
    "policy process, memory": ("MB", 150.0),
    "web process, at rest": ("% of a core", 5.0),
    "policy process, at rest": ("% of a core", 5.0),
}
UNIT = (ROOT / "roles/console/templates/corral-console.service.j2").read_text()
MALLOC = dict(re.findall(r"(MALLOC_\w+)=(\d+)", UNIT))
REST_S, EVENTS, START_S = 40, 15, 60
NAME, USER, PASSWORD = "127.0.0.1", "alice", "correct horse battery"

HOW = """
Both processes of the web console on this machine, hypervisors of libvirt's test driver, one open page
- first paint: from the request for the page, by a user who is logged in, to what the browser draws first
- event to screen: from a guest that is paused to its card, median
- memory: resident, with the page open; at rest: processor time while nothing happens. Of the web process, without what the
  test drivers need, which are on other machines otherwise: a process that only opens them and reads their statistics as often
"""

# The real server, and a thread beside it that pauses and resumes a guest: one process shares the driver's default host.
WEB = """\
import sys, threading, time, libvirt
from ansible_collections.corral.virt.roles.console.files.corral_console.__main__ import main
def act():
    guest = libvirt.open("test:///default").lookupByName("test")
    for line in sys.stdin:
        before = time.time()
        (guest.suspend if line == "suspend\\n" else guest.resume)()
        print(before, flush=True)
threading.Thread(target=act, daemon=True).start()
sys.exit(main())
"""
DRIVERS = """\
import json, sys, time, libvirt
print(flush=True)
kinds = libvirt.VIR_DOMAIN_STATS_STATE | libvirt.VIR_DOMAIN_STATS_CPU_TOTAL | libvirt.VIR_DOMAIN_STATS_BALLOON
kinds |= libvirt.VIR_DOMAIN_STATS_VCPU
sys.stdin.readline()
connections = [libvirt.openReadOnly(uri) for uri in json.load(open(sys.argv[1]))]
while True:
    for connection in connections:
        connection.getAllDomainStats(kinds)
    print(flush=True)
    time.sleep(2)
"""
CONSOLE = "ansible_collections.corral.virt.roles.console.files.corral_console"
WATCH = """() => {
  window.seen = {};
  new MutationObserver((changes) => changes.forEach(({ target }) => {
    if (target.dataset?.guest === "test") window.seen[target.dataset.state] = Date.now();
  })).observe(document.body, { subtree: true, attributes: true, childList: true });
}"""
# The page draws the cards that are in view, and counts all.
COUNTED = """count => document.querySelector('.card[data-guest]') &&
  document.querySelector('.summary')?.textContent.includes(` ${count} guests`)"""
FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


class Service:
    """Both processes, for the length of a `with` block."""

    def __init__(self, cloud: Cloud) -> None:
        self.folder, self.port = cloud.place, _free_port()
        self.guests, self.uris = cloud.guests + 1, [*cloud.uris.values(), "test:///default"]
        self._write(cloud)

    def _write(self, cloud: Cloud) -> None:
        folder, hosts = self.folder, {**cloud.uris, "default": "test:///default"}
        (folder / "tls").mkdir()
        _ran("certificate", str(folder / "tls"), NAME)
        key = ("openssl", "genpkey", "-quiet", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
        subprocess.run([*key, "-out", str(folder / "ticket.key")], check=True)
        _libraries(folder / "lib.zip")
        web = {"names": [f"{NAME}:{self.port}"], "listen": NAME, "port": self.port, "state": str(folder)}
        web |= {"hosts": {name: {"uri": uri} for name, uri in hosts.items()}, "libraries": str(folder / "lib.zip")}
        web |= {"policy_socket": str(folder / "socket")}
        web |= {"certificate": str(folder / "tls/server.crt"), "key": str(folder / "tls/server.key")}
        policy = {"directory": str(folder), "policy": str(folder / "policy.json"), "hosts": list(hosts)}
        policy |= {"web_user": getpass.getuser(), "group": "hyper", "project": str(folder), "ansible": str(folder)}
        policy |= {"variables": str(folder / "variables.json")}
        rules = [{"who": f"user:{USER}", "may": "*"}]
        for name, content in (("web", web), ("jobs", policy), ("policy", rules), ("variables", {})):
            (folder / f"{name}.json").write_text(json.dumps(content))
        _ran("users", "--config", str(folder / "jobs.json"), given=json.dumps([{"name": USER, "password": PASSWORD}]))

    @contextlib.contextmanager
    def running(self) -> t.Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
        """The web process and the policy process, which gets its socket as systemd passes it."""
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(self.folder / "socket"))
            listening.listen(100)
            start = (sys.executable, "-m", CONSOLE, "policy", "--config", str(self.folder / "jobs.json"))
            shell = ("sh", "-c", f'exec "$@" 3<&{listening.fileno()}', "sh")
            policy = subprocess.Popen([*shell, *start], pass_fds=[listening.fileno()], text=True)
        words = (sys.executable, "-c", WEB, "serve", "--config", str(self.folder / "web.json"))
        web = _talking(*words)
        try:
            yield web, policy
        finally:
            for process in (web, policy):
                process.terminate()
            for process in (web, policy):
                process.wait(30)

    def cookie(self) -> str:
        """Of the user, once the server answers."""
        patience = Patience(START_S)
        while True:
            try:
                return self._logged_in()
            except OSError as error:
                if patience.is_over:
                    raise Failed(f"the server does not answer: {error}") from error
                time.sleep(0.2)

    def _logged_in(self) -> str:
        context = ssl.create_default_context(cafile=str(self.folder / "tls/ca.crt"))
        connection = http.client.HTTPSConnection(NAME, self.port, context=context, timeout=10)
        headers = {"origin": f"https://{NAME}:{self.port}", "content-type": "application/json"}
        connection.request("POST", "/api/login", json.dumps({"user": USER, "password": PASSWORD}), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise Failed(f"the login ended with {answer.status}: {answer.read().decode()}")
        return str(answer.headers["set-cookie"]).partition(";")[0]


def drivers(service: Service) -> tuple[float, float]:
    """MB, and percent of a core, that the test drivers need alone."""
    uris = service.folder / "uris.json"
    uris.write_text(json.dumps(service.uris))
    words = (sys.executable, "-c", DRIVERS, str(uris))
    process = _talking(*words)
    try:
        assert process.stdin and process.stdout
        process.stdout.readline()
        empty = _resident_mb(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        before = _cpu_s(process.pid)
        time.sleep(REST_S)
        return _resident_mb(process.pid) - empty, 100 * (_cpu_s(process.pid) - before) / REST_S
    finally:
        process.terminate()
        process.communicate()


def rows() -> t.Iterator[Row]:
    """Measure all sizes."""
    print(HOW, flush=True)
    for hosts, each in SIZES:
        say(f"{hosts} hypervisors with {each} guests each")
        service = Service(Cloud.made(BUILD / f"console-{hosts}x{each}", hosts, each))
        memory_mb, processor = drivers(service)
        figures = measured(service)
        figures["web process, memory"] -= memory_mb
        figures["web process, at rest"] -= processor
        for name, (unit, limit) in LIMITS.items():
            target = 1.0 if limit and (hosts, each) == TARGETED else None
            yield Row(f"console, {name}", hosts * each, figures[name], LIMIT, limit, unit, target, f"{hosts} x {each}")


def measured(service: Service) -> dict[str, float]:
    """The figures of LIMITS."""
    with service.running() as (web, policy), sync_playwright() as playwright:
        cookie = service.cookie()
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        context = browser.new_context(ignore_https_errors=True, bypass_csp=True)  # it has to wait for a function
        name, _equals, value = cookie.partition("=")
        url = f"https://{NAME}:{service.port}"
        context.add_cookies([{"name": name, "value": value, "url": url, "secure": True}])
        _shown(context.new_page(), url, service.guests)  # the server has read all
        context.pages[0].close()
        page = context.new_page()
        found = dict(zip(("first paint", "all guests there"), _shown(page, url, service.guests), strict=True))
        found["event to screen"] = _event_s(page, web)
        page.locator("#search").fill("")
        for label, process in (("web process", web), ("policy process", policy)):
            found[f"{label}, memory"] = _resident_mb(process.pid)
        before = [_cpu_s(process.pid) for process in (web, policy)]
        time.sleep(REST_S)
        for label, process, earlier in zip(("web process", "policy process"), (web, policy), before, strict=True):
            found[f"{label}, at rest"] = 100 * (_cpu_s(process.pid) - earlier) / REST_S
        browser.close()
        return found


def _shown(page: Page, url: str, guests: int) -> tuple[float, float]:
    """Seconds until something is drawn, and until all guests are there."""
    begun = time.monotonic()
    page.goto(url, wait_until="commit")
    page.wait_for_function(COUNTED, arg=guests, timeout=START_S * 1000)
    return float(page.evaluate(FIRST_PAINT)) / 1000, time.monotonic() - begun


def _event_s(page: Page, web: subprocess.Popen[str]) -> float:
    """Median seconds from a guest that is paused or resumed to its card."""
    assert web.stdin and web.stdout
    page.locator("#search").fill("default")  # its card comes into view
    page.locator(".card[data-guest=test]").wait_for(timeout=START_S * 1000)
    page.evaluate(WATCH)
    seen = []
    for number in range(EVENTS):
        word, state = (("suspend", "paused"), ("resume", "running"))[number % 2]
        page.evaluate("state => delete window.seen[state]", state)
        web.stdin.write(f"{word}\n")
        web.stdin.flush()
        begun = float(web.stdout.readline())
        page.wait_for_function("state => window.seen[state]", arg=state, timeout=START_S * 1000)
        seen.append(float(page.evaluate("state => window.seen[state]", state)) / 1000 - begun)
        time.sleep(0.37)
    return statistics.median(seen)


def _talking(*command: str) -> subprocess.Popen[str]:
    """A process that answers lines, with the memory settings of the service."""
    environment = {**os.environ, **MALLOC}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def _resident_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _ran(*words: str, given: str | None = None) -> None:
    subprocess.run(
        [sys.executable, "-m", CONSOLE, *words], input=given, stdout=subprocess.DEVNULL, text=True, check=True
    )


def _libraries(path: Path) -> None:
    """As the role makes them."""
    from ansible_collections.corral.virt.roles.console.files import pack_console

    path.write_bytes(pack_console.libraries(ROOT / ".cache/console-packages", fetch=True))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((NAME, 0))
        return int(probe.getsockname()[1])
