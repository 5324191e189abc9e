"""The web console on a lab's host, and browsers that use it."""

from __future__ import annotations

import functools
import json
import os
import re
import typing as t
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from ansible_collections.corral.virt.roles.console.files import pack_console
from ansible_collections.corral.virt.tests.lab.hypervisors import ROOT, Hypervisors

__all__ = [
    "LOOKS",
    "PACKAGES",
    "PASSWORD",
    "PATIENCE_MS",
    "Browsing",
    "Site",
    "card",
    "connected",
    "violations",
    "violations_in_both_schemes",
]

PATIENCE_MS = 300_000  # for a run of Ansible, on a machine that does much else
expect.set_options(timeout=PATIENCE_MS)
PASSWORD = "correct horse battery"
PACKAGES = ROOT / ".cache/console-packages"
AXE = {
    "package": "axe-core",
    "version": "4.14.1",
    "integrity": "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
    "directory": "axe",
    "files": {"axe.min.js": "axe.min.js"},
}
LOOKS: dict[str, dict[str, t.Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True},
}


class Site(Hypervisors):
    """A lab with a console on its first host."""

    def address(self, name: str = "hyper1") -> str:
        """Of a host."""
        hosts = yaml.safe_load((self.folder / "inventory/hosts.yml").read_text())
        return str(next(_values(hosts, name))["ansible_host"])

    @property
    def url(self) -> str:
        """Of the page."""
        return f"https://{self.address()}:8443"

    def install(self, *flags: str, ok: bool = True, **more: t.Any) -> str:
        """Run the playbook as a user would; all that it printed."""
        return self.run(*self.installation(**more), *flags, ok=ok)

    def installation(self, **more: t.Any) -> tuple[str, ...]:
        """The command that does it."""
        given = {
            "console_host": "hyper1",
            "console_names": [self.address()],
            "console_libraries": str(PACKAGES),
            "console_inventory": ["inventory/hosts.yml"],
            "console_ssh_key": str(self.folder / "id_ed25519"),
            **more,
        }
        return ("ansible-playbook", *self.ask_nobody, "corral.virt.console_server", "-e", json.dumps(given))

    def uuid(self, name: str, host: str = "hyper1") -> str:
        """Of a guest."""
        return self.on(host, f"virsh domuuid {name}")

    def state(self, name: str) -> dict[str, str]:
        """What virsh says of a guest, by host."""
        said = {host: self.on(host, f"virsh domstate {name} 2>/dev/null || true") for host in ("hyper1", "hyper2")}
        return {host: state for host, state in said.items() if state}


def connected(page: Page, host: str = r"hyper\d") -> None:
    """Wait until its console is; the text of one that is not says why."""
    expect(page.locator("#console-status")).to_have_text(re.compile(f"^Connected, on {host}$"))


def _values(tree: t.Any, key: str) -> Iterator[t.Any]:
    for name, value in tree.items() if isinstance(tree, dict) else ():
        if name == key and value:
            yield value
        yield from _values(value, key)


class Browsing:
    """A browser, and all that went wrong in it."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.browser, self.url = browser, url
        self.problems: list[str] = []

    def context(self, **how: t.Any) -> BrowserContext:
        """A browser of somebody else."""
        return self.browser.new_context(ignore_https_errors=True, **how)

    def page(self, context: BrowserContext) -> Page:
        """Errors, violations of the page's policy among them, and dialogs that a script opened are problems."""
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: self.problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: self.problems.append(dialog.message))
        return page

    def enter(self, user: str = "alice", **how: t.Any) -> Page:
        """A page of the user."""
        page = self.page(self.context(**how))
        page.goto(self.url)
        page.get_by_label("User").fill(user)
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        return page

    def close(self) -> None:
        """No test leaves an error in the browser's console."""
        for context in self.browser.contexts:
            context.close()
        assert self.problems == []


@pytest.fixture(scope="module")
def browser(console: str) -> Iterator[Browser]:
    """In a network that does not change with other labs."""
    chromium, host = Path(__file__).with_name("apart.sh"), urllib.parse.urlsplit(console).hostname
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"], env={**os.environ, "LAB_HOST": str(host)}
        )
        yield made
        made.close()


@pytest.fixture
def browsing(browser: Browser, console: str) -> Iterator[Browsing]:
    """No test leaves an error in the browser's console, which is where violations of the page's policy show, too."""
    made = Browsing(browser, console)
    yield made
    made.close()


def card(page: Page, name: str, host: str = "hyper1") -> Locator:
    """Of a guest, on the page of all hosts."""
    return page.locator(f".card[data-guest={name}][data-host={host}]")


@functools.cache
def _axe() -> str:
    content = pack_console._package(AXE, PACKAGES, fetch=True)
    (script,) = (text for _name, text in pack_console._files(AXE, content))
    return script.decode()


def violations(page: Page) -> list[tuple[str, str]]:
    """What axe finds, and whether the page is wider than the screen."""
    page.evaluate(_axe() + "; 0")
    found = [(each["id"], each["nodes"][0]["html"]) for each in page.evaluate("axe.run()")["violations"]]
    fits = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return found if fits else [*found, ("wider than the screen", page.url)]


def violations_in_both_schemes(page: Page) -> list[tuple[str, str]]:
    """What axe finds; in the dark, of the colours, which alone differ."""
    found = violations(page)
    page.emulate_media(color_scheme="dark")
    options = '{runOnly: ["color-contrast"]}'
    dark = [(each["id"], each["nodes"][0]["html"]) for each in page.evaluate(f"axe.run({options})")["violations"]]
    page.emulate_media(color_scheme="light")
    return [*found, *dark]


def changes(printed: str) -> int:
    """Of a run."""
    return sum(map(int, re.findall(r"changed=(\d+)", printed)))
