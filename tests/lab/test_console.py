"""The web console in a real browser, on real hosts: the collection installs it, `virsh` acts behind its back."""

from __future__ import annotations

import base64
import functools
import json
import ssl
import time
import typing as t
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Route, expect

from ansible_collections.corral.virt.tests.lab.console import (
    LOOKS,
    PASSWORD,
    Browsing,
    Site,
    browser,
    browsing,
    card,
    changes,
    connected,
    violations,
)
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import stretched, until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    hypervisors,
)

__all__ = ["browser", "browsing"]

pytestmark = pytest.mark.lab

LAB = Site("console")
on, on2 = functools.partial(LAB.on, "hyper1"), functools.partial(LAB.on, "hyper2")
USERS = [
    {"name": "alice", "password": PASSWORD, "groups": ["admins"]},
    {"name": "bob", "password": PASSWORD},
]
POLICY = [{"who": "group:admins", "may": "*"}, {"who": "user:bob", "may": "view"}]
install = functools.partial(LAB.install, console_users=USERS, console_policy=POLICY)
address, uuid = LAB.address, LAB.uuid
# Its firmware writes to both consoles; nothing listens.
GUEST = """<domain type='qemu'><name>{}</name><title>&lt;img src=x onerror=alert(1)&gt; {{{{ 1 }}}}</title><memory unit='MiB'>64</memory>
<os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type><bios useserial='yes'/></os><devices><serial type='pty'/>
<graphics type='vnc'><listen type='none'/></graphics><video><model type='vga'/></video></devices></domain>"""
NAMES = ("web1", "web2")
# It writes each key that it gets to its screen, and its firmware writes that to the serial port, too.
ECHO = base64.b64encode(bytes.fromhex("b400cd16b40ebb0700cd10ebf3").ljust(510, b"\0") + b"\x55\xaa").decode()
ECHO_DISK = """<disk type='file' device='disk'><driver name='qemu' type='raw'/>
<source file='/var/lib/libvirt/images/echo.img'/><target dev='vda' bus='virtio'/></disk><serial type='pty'/>"""
LIT = """() => {
  const canvas = document.querySelector('.screen canvas');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let lit = 0;
  for (let at = 0; at < data.length; at += 4) lit += data[at] > 100;
  return lit;
}"""
# How often the stream began anew, and its messages.
STREAM = """window.streamed = {resets: 0, messages: 0};
window.EventSource = class extends EventSource {
  constructor(url) {
    super(url);
    this.addEventListener("state", (event) => {
      window.streamed.messages += 1;
      window.streamed.resets += JSON.parse(event.data).reset;
    });
  }
};"""
SOCKET = """(ticket) => new Promise((done) => {
  const socket = new WebSocket(`wss://${location.host}/api/console?ticket=${encodeURIComponent(ticket)}`);
  socket.onmessage = (event) => { done(event.data); socket.close(); };
  socket.onclose = () => done("refused");
})"""
# Of what comes from a console, only that it is there.
SILENT = """() => {
  const real = WebSocket;
  window.WebSocket = function (url) {
    const socket = new real(url);
    socket.addEventListener("message", (event) => event.data === "ok" || event.stopImmediatePropagation());
    return socket;
  };
}"""
TICKET = """(uuid) => fetch("/api/tickets", {method: "POST", headers: {"content-type": "application/json"},
  body: JSON.stringify({uuid, kind: "vnc"})}).then((answer) => answer.json()).then((answer) => answer.ticket)"""
COLOURS = """() => {
  const canvas = document.querySelector('.screen canvas');
  if (!canvas || !canvas.width) return 0;
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4) seen.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
  return seen.size;
}"""


@pytest.fixture(scope="module", autouse=True)
def console() -> Iterator[str]:
    """Its URL."""
    with hypervisors("console", hosts=2):
        assert changes(install("--check")) > 0
        assert "console" not in on("ls /etc /usr/lib /var/lib | grep -i corral-console || true")
        install()
        on("nft add rule inet filter input tcp dport 8443 accept")
        for name in NAMES:
            on(f"cat >/tmp/{name}.xml && virsh define /tmp/{name}.xml", given=GUEST.format(name))
        on("virsh start web1")
        yield LAB.url


def test_a_second_run_changes_nothing(console: str) -> None:
    assert changes(install()) == 0
    # A hypervisor that is away keeps the host key that was seen before.
    assert changes(install("--check", "--limit", "hyper1")) == 0
    assert "hyper2 ssh-ed25519" in on("cat /etc/corral-console/ssh/known_hosts")


def test_the_certificate_is_the_consoles_own(console: str) -> None:
    context = ssl.create_default_context(cadata=on("cat /etc/corral-console/tls/ca.crt"))
    with urllib.request.urlopen(f"{console}/api/me", context=context) as answer:
        assert answer.read() == b"{}"


def test_a_wrong_password_is_told_and_a_right_one_shows_the_guests(browsing: Browsing) -> None:
    page = browsing.page(browsing.context())
    page.goto(browsing.url)
    page.get_by_label("User").fill("alice")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("user, password or code is wrong")
    browsing.problems.clear()  # the browser reports the answer 403
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(card(page, "web1")).to_have_attribute("data-state", "running")
    expect(card(page, "web2")).to_have_attribute("data-state", "shutdown")
    expect(card(page, "web1")).to_contain_text("<img src=x onerror=alert(1)> {{ 1 }}")
    assert page.locator("section[data-group=hyper2]").count() == 1


def test_what_virsh_does_is_seen_within_two_seconds(browsing: Browsing) -> None:
    page = browsing.enter()
    expect(card(page, "web2")).to_be_visible()
    for command, state in (("start", "running"), ("suspend", "paused"), ("destroy", "shutdown")):
        on(f"virsh {command} web2")
        expect(card(page, "web2")).to_have_attribute("data-state", state, timeout=stretched(2000))
    on("virsh undefine web2")
    expect(card(page, "web2")).to_have_count(0, timeout=stretched(2000))
    on("virsh define /tmp/web2.xml")
    expect(card(page, "web2")).to_be_visible(timeout=2000)


@pytest.mark.deep
def test_guests_are_searched_and_filtered(browsing: Browsing) -> None:
    page = browsing.enter()
    expect(card(page, "web2")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("WEB1")
    expect(card(page, "web2")).to_have_count(0)
    expect(card(page, "web1")).to_be_visible()
    page.locator("#state").select_option("shutdown")
    expect(page.get_by_text("No guest matches.")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    page.locator("#group").select_option("state")
    expect(page.get_by_role("region", name="Group Off")).to_contain_text("web2")


def test_the_display_and_the_serial_console_follow_a_migration(browsing: Browsing) -> None:
    display, serial = browsing.enter(), None
    display.goto(f"{browsing.url}/#/guest/hyper1/{uuid('web1')}")
    display.get_by_role("link", name="Display").click()
    connected(display, "hyper1")
    until(lambda: display.evaluate(COLOURS) > 1)
    serial = browsing.page(display.context)
    serial.goto(f"{browsing.url}/#/console/{uuid('web1')}/serial")
    connected(serial, "hyper1")
    on("virsh reset web1")
    expect(serial.locator(".screen")).to_contain_text("SeaBIOS")
    assert "5900" not in on("ss -Hltn"), "nothing listens for it"
    on(f"virsh migrate --live --p2p web1 qemu+tls://{address('hyper2')}/system")
    for page in (display, serial):
        connected(page, "hyper2")
    until(lambda: display.evaluate(COLOURS) > 1)
    LAB.on("hyper2", f"virsh migrate --live --p2p web1 qemu+tls://{address()}/system")
    connected(display, "hyper1")


@pytest.fixture
def echo() -> Iterator[str]:
    """The UUID of a guest that echoes keys."""
    on("base64 -d >/var/lib/libvirt/images/echo.img && truncate -s 1M /var/lib/libvirt/images/echo.img", given=ECHO)
    on("virsh define /dev/stdin", given=GUEST.format("echo").replace("<serial type='pty'/>", ECHO_DISK))
    on("virsh start echo")
    yield uuid("echo")
    on("virsh destroy echo; virsh undefine echo")


def test_keys_reach_the_guest_and_what_it_writes_is_shown(browsing: Browsing, echo: str) -> None:
    page = browsing.enter()
    page.goto(f"{browsing.url}/#/console/{echo}/vnc")
    connected(page)
    until(lambda: page.evaluate(COLOURS) > 1)
    until(lambda: "running" in on("virsh domstate echo") and page.evaluate(LIT) > 0)
    page.wait_for_timeout(8000)  # for its firmware to begin it
    before = page.evaluate(LIT)
    page.locator(".screen canvas").click()
    page.keyboard.type("WWWWWWWWWWWWWWWWWWWW", delay=60)
    until(lambda: page.evaluate(LIT) > before + 20 * 10, 60)  # more than a cursor that blinks
    page.goto(f"{browsing.url}/#/console/{echo}/serial")
    connected(page)
    page.keyboard.type("some words", delay=60)
    expect(page.locator(".screen")).to_contain_text("some words")
    page.get_by_role("button", name="Paste as keys").click()
    page.get_by_label("Text").fill("pasted")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".screen")).to_contain_text("wordspasted")


@pytest.mark.deep
def test_a_ticket_is_good_once_for_its_session_and_seconds(browsing: Browsing) -> None:
    page, other = browsing.enter(), browsing.enter("bob")
    tickets = [page.evaluate(TICKET, uuid("web1")) for _each in range(3)]
    assert other.evaluate(SOCKET, tickets[0]) == "refused", "it is alice's"
    assert page.evaluate(SOCKET, tickets[0]) == "refused", "who has stolen it has used it"
    assert page.evaluate(SOCKET, tickets[1]) == "ok"
    assert page.evaluate(SOCKET, tickets[1]) == "refused", "it was used"
    time.sleep(16)
    assert page.evaluate(SOCKET, tickets[2]) == "refused", "it is too old"
    cookie = next(each for each in page.context.cookies() if each["name"] == "__Host-corral")["value"]
    fresh = page.evaluate(TICKET, uuid("web1"))
    key = base64.b64encode(bytes(16)).decode()
    for origin, status in (("https://evil.example", "403"), (browsing.url, "101")):
        headers = {
            "Origin": origin,
            "Cookie": f"__Host-corral={cookie}",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
        }
        headers |= {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}
        words = " ".join(f"-H '{name}: {value}'" for name, value in headers.items())
        printed = LAB.run(
            "sh",
            "-c",
            f"curl -ski --http1.1 -m 3 {words} '{browsing.url}/api/console?ticket={fresh}' | head -1 || true",
        )
        assert f" {status} " in printed, origin
    browsing.problems.clear()  # the browser reports the sockets that were refused


def ask(url: str, token: str, given: dict[str, t.Any] | None = None) -> tuple[int, t.Any]:
    """As a program with a token does."""
    context = ssl.create_default_context(cadata=on("cat /etc/corral-console/tls/ca.crt"))
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if given is None else json.dumps(given).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), context=context) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.deep
def test_a_token_is_made_used_and_revoked(browsing: Browsing) -> None:
    """It does what its user may do, and nothing else."""
    pages = {user: browsing.enter(user) for user in ("alice", "bob")}
    tokens = {}
    for user, page in pages.items():
        page.get_by_role("link", name=user).click()
        page.get_by_label("Name of a new token").fill("backup <b>script</b>")
        page.get_by_role("button", name="Make token").click()
        tokens[user] = page.locator(".secret").inner_text()
        expect(page.get_by_role("table").last).to_contain_text("backup <b>script</b>")
    start = {"action": "start", "guests": [uuid("web2")], "arguments": {}}
    status, answer = ask(f"{browsing.url}/api/jobs", tokens["bob"], start)
    assert status == 403 and "bob may not start" in answer["error"]
    status, answer = ask(f"{browsing.url}/api/jobs", tokens["alice"], start)
    assert status == 201, answer
    until(lambda: on("virsh domstate web2") == "running", 120)
    until(lambda: ask(f"{browsing.url}/api/jobs/{answer['id']}", tokens["alice"])[1]["state"] == "succeeded", 60)
    assert ask(f"{browsing.url}/api/tokens", tokens["alice"], {"name": "more"})[0] == 403, "a token makes no tokens"
    page = pages["alice"]
    page.reload()
    expect(page.locator(".secret")).to_have_count(0)
    page.get_by_role("row", name="backup").get_by_role("button", name="End").click()
    expect(page.get_by_role("row", name="backup")).to_have_count(0)
    assert ask(f"{browsing.url}/api/jobs", tokens["alice"], start)[0] == 401
    assert ask(f"{browsing.url}/api/actions", tokens["bob"]) == (200, [])
    on("virsh destroy web2")


@pytest.mark.deep
def test_the_session_of_another_user_is_ended(browsing: Browsing) -> None:
    bob = browsing.enter("bob")
    expect(card(bob, "web1")).to_be_visible()
    page = browsing.enter()
    page.get_by_role("link", name="Users").click()
    row = page.get_by_role("row", name="bob")
    expect(row.get_by_role("listitem").first).to_be_visible()
    while (count := row.get_by_role("listitem").count()) > 0:
        row.get_by_role("button", name="End the session of bob").first.click()
        expect(row.get_by_role("listitem")).to_have_count(count - 1)
    expect(bob.get_by_label("Password")).to_be_visible()
    assert bob.locator(".card").count() == 0, "nothing of what was seen stays"
    assert bob.evaluate("fetch('/api/events').then((answer) => answer.status)") == 401
    browsing.problems.clear()  # the browser reports the answers 401


@pytest.mark.deep
def test_a_broken_stream_goes_on_where_it_was(browsing: Browsing) -> None:
    page = browsing.page(browsing.context())
    page.add_init_script(STREAM)
    page.goto(browsing.url)
    page.get_by_label("User").fill("alice")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(card(page, "web2")).to_have_attribute("data-state", "shutdown")
    assert page.evaluate("streamed.resets") == 1
    on("nft insert rule inet filter input tcp dport 8443 reject with tcp reset")
    try:
        expect(page.get_by_text("Not connected")).to_be_visible()
        on("virsh define /dev/stdin && virsh undefine web2", given=GUEST.format("web3"))
        on("virsh suspend web1")
    finally:
        on(
            "nft delete rule inet filter input handle "
            "$(nft -a list chain inet filter input | awk '/8443 reject/ {print $NF}')"
        )
    expect(card(page, "web3")).to_be_visible()
    expect(card(page, "web2")).to_have_count(0)
    expect(card(page, "web1")).to_have_attribute("data-state", "paused")
    assert page.evaluate("streamed.resets") == 1, "only what was missed is sent"
    on("virsh resume web1; virsh undefine web3; virsh define /tmp/web2.xml")
    browsing.problems.clear()  # the browser reports that the server was away


@pytest.mark.deep
def test_a_serial_console_in_use_is_taken_over_only_on_request(browsing: Browsing) -> None:
    page = browsing.enter()
    where = f"{browsing.url}/#/console/{uuid('web1')}/serial"
    page.goto(where)
    connected(page)
    other = browsing.page(page.context)
    other.goto(where)
    expect(other.locator("#console-status")).to_have_text("the console is in use")
    other.get_by_role("button", name="Take over").click()
    connected(other)
    expect(page.locator("#console-status")).to_have_text("the console is in use")


@pytest.mark.deep
@pytest.mark.parametrize(
    "part",
    [
        "static/page.js",
        "api/me",
        *(
            pytest.param(part, marks=pytest.mark.deep)
            for part in ("static/style.css", "static/words.js", "static/lib/novnc/core/rfb.js")
        ),
    ],
)
def test_a_part_of_the_page_that_does_not_arrive_is_loaded_again(browsing: Browsing, part: str) -> None:
    page, tried = browsing.enter(), []

    def fail_once(route: Route) -> None:
        tried.append(route.request.url)
        if len(tried) == 1:
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route(f"**/{part}", fail_once)
    page.goto(f"{browsing.url}/#/console/{uuid('web1')}/vnc")
    with page.expect_response(f"**/{part}"):  # what was aborted has none
        page.reload()
    connected(page)
    assert page.evaluate("getComputedStyle(document.querySelector('header.top')).display") == "flex"
    browsing.problems.clear()  # the browser reports what did not arrive


@pytest.mark.deep
def test_a_display_that_says_nothing_is_tried_again(browsing: Browsing) -> None:
    page = browsing.enter()
    page.evaluate(SILENT)
    page.goto(f"{browsing.url}/#/console/{uuid('web1')}/vnc")
    status = page.locator("#console-status")
    expect(status).to_have_text("the display does not answer; connecting again …")


def test_who_may_not_open_consoles_is_offered_none(browsing: Browsing) -> None:
    page = browsing.enter("bob")
    page.goto(f"{browsing.url}/#/guest/hyper1/{uuid('web1')}")
    expect(page.get_by_role("heading", name="Disks")).to_be_visible()
    assert page.get_by_role("link", name="Display").count() == 0
    page.goto(f"{browsing.url}/#/console/{uuid('web1')}/vnc")
    expect(page.locator("#console-status")).to_contain_text("bob may not console")
    browsing.problems.clear()  # the browser reports the answer 403


def test_logout_ends_streams_and_consoles(browsing: Browsing) -> None:
    page = browsing.enter()
    console = browsing.page(page.context)
    console.goto(f"{browsing.url}/#/console/{uuid('web1')}/vnc")
    connected(console)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    expect(console.get_by_label("Password")).to_be_visible()
    until(
        lambda: "corral-console-relay@" not in on("systemctl list-units --plain --no-legend 'corral-console-relay@*'")
    )
    browsing.problems.clear()  # the browser reports the answers 401


def test_the_keys_open_nothing_else(console: str) -> None:
    ssh = "runuser -u corral-console -- /usr/lib/corral-console/ssh -i /etc/corral-console/ssh/{} {} corral-viewer@hyper2 {}"
    for request in ("id", "", "'vnc web1'", f"'vnc {uuid('web1')};id'", "'serial ../../x'", f"'ssh {uuid('web1')}'"):
        printed = on(ssh.format("console", "-T", request) + " </dev/null 2>&1 || true")
        assert (
            "this key opens consoles with a ticket of the web console, and nothing else" in printed
            and "uid=" not in printed
        )
    first, told = on(ssh.format("console", "-T", "host") + " </dev/null").splitlines()
    assert first == "ok" and json.loads(told)["maintenance"] is None
    for flags in ("-W 127.0.0.1:22", "-N -R 0:127.0.0.1:22 -o ExitOnForwardFailure=yes"):
        for key in ("console", "read"):
            assert "SSH-2" not in on(f"timeout 5 {ssh.format(key, flags, '')} </dev/null 2>&1 || true")
    uri = on("cat /etc/corral-console/config.json")
    uri = json.loads(uri)["hosts"]["hyper1"]["uri"]
    refused = on(f"runuser -u corral-console -- virsh -c '{uri}' destroy web1 2>&1", ok=False)
    assert "read only access" in refused or "denied" in refused
    for secret in ("/etc/corral-console/tls/server.key", "/etc/corral-console/tls/ca.key", "/etc/shadow"):
        on(f"runuser -u corral-console -- cat {secret} 2>&1", ok=False)
    on("runuser -u corral-console -- virsh -c qemu:///system list 2>&1", ok=False)


@pytest.mark.deep
def test_a_host_shows_when_its_certificates_end(browsing: Browsing) -> None:
    page = browsing.enter()
    page.goto(f"{browsing.url}/#/host/hyper2")
    shown = page.get_by_role("region", name="Certificates")
    ends = {}
    for name, path in (
        ("libvirt server", "libvirt/servercert"),
        ("libvirt client", "libvirt/clientcert"),
        ("QEMU server", "qemu/server-cert"),
        ("QEMU client", "qemu/client-cert"),
    ):
        ends[name] = on2(f'date -d "$(openssl x509 -noout -enddate -in /etc/pki/{path}.pem | cut -d= -f2)" +%s')
        words = page.evaluate("seconds => new Date(seconds * 1000).toLocaleString()", int(ends[name]))
        expect(shown.get_by_role("row", name=name)).to_contain_text(words)
    made = (
        "openssl req -x509 -newkey ed25519 -nodes -subj /CN=x -keyout /dev/null -days {} -out /tmp/soon.pem 2>/dev/null"
    )
    place = "/etc/pki/qemu/client-cert.pem"
    target = on2(f"readlink {place}")
    try:
        for days, how in ((20, "warn"), (2, "bad")):
            on2(f"{made.format(days)} && chmod 644 /tmp/soon.pem && ln -sfn /tmp/soon.pem {place}")
            on("systemctl restart corral-console")  # which reads anew at once
            cell = shown.get_by_role("row", name="QEMU client").locator(".expiry")
            expect(cell).to_have_class(f"expiry {how}")
            expect(page.get_by_role("status").filter(has_text="rotate_certificates").first).to_be_visible()
    finally:
        on2(f"ln -sfn {target} {place}")
    browsing.problems.clear()  # the browser reports that the server was away


def test_an_unreachable_host_is_shown_and_comes_back(browsing: Browsing) -> None:
    page = browsing.enter()
    LAB.on(
        "hyper2",
        "systemctl stop libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirtd libvirtd-tls.socket 2>&1",
    )
    place = page.locator("section[data-group=hyper2]")
    expect(place).to_contain_text("Unreachable since")
    LAB.on("hyper2", "systemctl start libvirtd.socket libvirtd-ro.socket libvirtd-tls.socket")
    expect(place).not_to_contain_text("Unreachable since")


@pytest.mark.deep
def test_a_restart_of_the_server_is_survived(browsing: Browsing) -> None:
    page = browsing.enter()
    expect(card(page, "web1")).to_be_visible()
    begun = time.monotonic()
    on("systemctl restart corral-console")
    assert time.monotonic() - begun < 8, "open streams do not hold it back"
    on("virsh suspend web1")
    expect(card(page, "web1")).to_have_attribute("data-state", "paused")
    on("virsh resume web1")
    expect(card(page, "web1")).to_have_attribute("data-state", "running")
    browsing.problems.clear()  # the browser reports that the server was away


@pytest.mark.parametrize("look", ["light", *(pytest.param(look, marks=pytest.mark.deep) for look in ("dark", "phone"))])
def test_pages_are_accessible(browsing: Browsing, look: str) -> None:
    page = browsing.enter(**LOOKS[look])
    for place in ("", f"guest/hyper1/{uuid('web1')}", "host/hyper1", "sessions", f"console/{uuid('web1')}/serial"):
        page.goto(f"{browsing.url}/#/{place}")
        expect(page.get_by_role("heading", level=1)).to_be_attached()
        page.wait_for_timeout(700)
        assert violations(page) == [], place


def test_wrong_input_is_refused_at_once(console: str) -> None:
    printed = " ".join(install(ok=False, console_hosts=["hyper1", "hyper9"], console_key="x").split())
    assert "not names of hosts in the inventory: hyper9" in printed and "console_certificate and console_key" in printed
    wrong = [{"who": "bob", "may": "strat"}, {"who": "user:bob", "may": "start", "guest": "web*"}]
    printed = " ".join(install("--check", ok=False, console_policy=wrong, console_hosts=["hyper9"]).split())
    for problem in ("rule 1: who must be user:NAME", "no action strat", "rule 2: guest is not a part", "hyper9"):
        assert problem in printed, "all problems at once, and in check mode"
    assert "has no host nowhere" in " ".join(install(ok=False, console_host="nowhere").split())
