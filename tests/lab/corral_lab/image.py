"""A Debian cloud image of our own, with its sums beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from corral_lab import cache, mirror
from corral_lab.places import CACHE, CHECKOUT

RELEASE = "bookworm"
RECIPE = CHECKOUT / "roles" / "image_builder" / "files" / "debian_image.sh"
CUSTOMIZE = CHECKOUT / "tests" / "lab" / "emulated.sh"
FILE = "debian-12-amd64.qcow2"


def place(*, mirror_url: str | None) -> Path:
    """Where the image's file is, or will be."""
    return CACHE / "images" / _name(_options(mirror_url)) / FILE


def image(*, mirror_url: str | None, lab: str, say: Callable[[str], None]) -> Path:
    """The image's file, made where it is not there yet."""
    options = _options(mirror_url)

    def build(place: Path) -> None:
        log = CACHE / "logs" / "image.log"
        cache.contained(RECIPE, *options, "--customize", CUSTOMIZE, place / FILE, lab=lab, log=log)
        with (place / FILE).open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        (place / "SHA256SUMS").write_text(f"{digest}  {FILE}\n")

    return cache.built("images", _name(options), build, say=say) / FILE


def _options(mirror_url: str | None) -> tuple[str, ...]:
    return ("--release", RELEASE, "--source", mirror.line_for(RELEASE, mirror=mirror_url), "--include", "lz4")


def _name(options: tuple[str, ...]) -> str:
    return f"debian-12-{cache.key_of(RECIPE.read_text(), CUSTOMIZE.read_text(), *options, *mirror.apt_options())}"
