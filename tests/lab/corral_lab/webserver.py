"""Serve the cloud image to a lab's hosts, as a vendor's site would."""

from __future__ import annotations

import functools
import io
import socket
import time
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO

from corral_lab import processes
from corral_lab.patience import Patience
from corral_lab.places import CHECKOUT, STATE, Lab, Problem
from corral_lab.shell import start

PORT = 8000
START_TIMEOUT_S = 15
PATIENCE_S = 50  # less than clients wait for an answer


def url(lab: Lab) -> str:
    return f"http://{lab.gateway}:{PORT}"


def ensure(lab: Lab, directory: Path, python: str) -> None:
    """Have a server of that directory running, and no other."""
    wanted = (python, CHECKOUT / "tests/lab/lab.py", "serve", lab.name, lab.gateway, str(PORT), directory)
    for pid in processes.find(lab.name, "web"):
        if Path(f"/proc/{pid}/cmdline").read_text().split("\0")[-2] == str(directory) and _answers(lab):
            return
    processes.end(lab.name, "web")
    log = lab.state / "logs" / "web.log"
    start(*wanted, mark=f"{lab.name}/web", log=log)
    patience = Patience(START_TIMEOUT_S)
    while not _answers(lab):
        if patience.is_over:
            raise Problem(f"the image server does not answer at {url(lab)}: see {log}")
        time.sleep(0.05)


def image_log(lab: str) -> Path:
    """What the process says that builds an image for a lab."""
    return STATE / lab / "logs" / "image.log"


class _Handler(SimpleHTTPRequestHandler):
    """Who asks for an image that is being built waits for it, or is told to ask again."""

    def __init__(self, *request: Any, lab: str, directory: Path) -> None:
        self.lab = lab
        super().__init__(*request, directory=str(directory))

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        place, deadline = Path(self.directory), time.monotonic() + PATIENCE_S
        while not place.exists():
            # In this order: the one that builds it ends when it is there.
            if not processes.find(self.lab, place.name) and not place.exists():
                self.send_error(HTTPStatus.NOT_FOUND, f"the image was not built: see {image_log(self.lab)}")
                return None
            if time.monotonic() > deadline:
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "the image is not built yet")
                return None
            time.sleep(0.5)
        return super().send_head()


def serve(lab: str, address: str, port: int, directory: Path) -> None:
    """Serve until killed."""
    ThreadingHTTPServer((address, port), functools.partial(_Handler, lab=lab, directory=directory)).serve_forever()


def _answers(lab: Lab) -> bool:
    try:
        socket.create_connection((lab.gateway, PORT), timeout=1).close()
    except OSError:
        return False
    return True
