"""The power switch of a lab's hosts, for fence agents: GET /HOST/status, /HOST/on, /HOST/off. For tests: /HOST/crash, and
how the outlet behaves from then on: /HOST/works, /HOST/refuses, /HOST/slow, /HOST/claims (it says "off" and does nothing),
/HOST/lies (the same, and then its status is "off").

    power_switch.py LAB PORT AGENT    serve on the lab's gateway, and write a fence agent for it to a file

It really ends a host's machine. What it does not show: a management controller that dies with its host.
"""

from __future__ import annotations

import http.server
import sys
import time
from pathlib import Path

from corral_lab import host, life, machine, processes
from corral_lab.places import Lab

AGENT = """#!/usr/bin/python3
import sys, urllib.request

given = dict(line.strip().split("=", 1) for line in sys.stdin if "=" in line)
action = given.get("action", "reboot")
if action in ("metadata", "meta-data"):
    names = ("on", "off", "reboot", "status", "monitor", "metadata")
    actions = "".join(f'<action name="{name}"/>' for name in names)
    print('<?xml version="1.0" ?><resource-agent name="fence_lab" shortdesc="Power switch of the lab"><longdesc/>'
          '<parameters><parameter name="plug"><content type="string"/></parameter></parameters>'
          f"<actions>{actions}</actions></resource-agent>")
    sys.exit(0)


def ask(verb):
    return urllib.request.urlopen(f"http://ADDRESS/{given['plug']}/{verb}", timeout=30).read().decode()


def switch(wanted):  # as agents of the packages do: the status counts, not the answer
    return ask(wanted) == wanted and ask("status") == wanted


if action == "reboot":
    sys.exit(0 if switch("off") and switch("on") else 1)
if action in ("off", "on"):
    sys.exit(0 if switch(action) else 1)
said = ask("status")
code = {"on": 0, "off": 2}.get(said, 1)
sys.exit(0 if action == "monitor" and code == 2 else code)
"""
BEHAVIOURS = ("works", "refuses", "slow", "claims", "lies")
SLOW_S = 25


def switched(lab: Lab, name: str, verb: str, behaves: dict[str, str]) -> str:
    """Do it; whether the host is on or off now, as the switch tells it."""
    known = host.hosts(lab).get(name)
    if known is None:
        return "off"  # a socket with nothing in it
    if verb in BEHAVIOURS:
        behaves[name] = verb
        return verb
    how = behaves.get(name, "works")
    if how == "refuses" and verb != "crash":
        return "refused"
    if how == "slow" and verb == "off":
        time.sleep(SLOW_S)
    if how in ("claims", "lies") and verb == "off":
        return "off"
    if how == "lies" and verb == "status":
        return "off"
    if verb in ("off", "crash"):
        processes.end(lab.name, name)
    if verb == "on" and not machine.running(lab, known):
        machine.boot(lab, known)
    return "on" if machine.running(lab, known) else "off"


def main(lab_name: str, port: str, agent: str) -> None:
    """Serve until it is ended; prints each request."""
    lab = life.find(lab_name)
    behaves: dict[str, str] = {}

    class Switch(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """One request."""
            _root, name, verb = self.path.split("/")
            text = switched(lab, name, verb, behaves)
            print(self.client_address[0], name, verb, text, flush=True)
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Said by do_GET."""

    server = http.server.ThreadingHTTPServer((lab.gateway, int(port)), Switch)
    Path(agent).write_text(AGENT.replace("ADDRESS", f"{lab.gateway}:{server.server_port}"))
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
