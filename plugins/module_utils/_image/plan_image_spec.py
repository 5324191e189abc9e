# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and validates the options of an image. Pure."""

from __future__ import annotations

import typing as t
import urllib.parse

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.output import without_secrets
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._core.uri import tls
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import (
    Checksum,
    ImageSpec,
    Source,
    Sums,
    is_url,
    parse_checksum,
)
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import Bounds, reserve_of

_SOURCES = ("url", "src", "origin")


def refuse_bypass(params: t.Mapping[str, t.Any]) -> None:
    """Raises BadInput for options that only the controller can read."""
    if params["catalogue"]:
        raise BadInput("catalogue: only the controller can read it; run virt_image as a task or with ansible -m")


def is_same_server(location: str, url: str) -> bool:
    """True if an address is on the server of `url`: only that server gets the user's credentials."""
    return urllib.parse.urlsplit(location)[:2] == urllib.parse.urlsplit(url)[:2]


def spec(params: t.Mapping[str, t.Any]) -> ImageSpec:
    """The requested image; raises BadInput with every problem."""
    name, problems = params["name"], Problems()
    problems.tried(lambda: units.check_name(name, what="name"))
    problems.tried(lambda: _bounds(params))
    problems.found += _about_source(params)
    checksum = problems.tried(lambda: _checksum(params))
    form = params["format"] or units.format_of(name) or ("raw" if name.endswith(".iso") else None)
    problems.found += _contradictions(params, checksum)
    if form is None and params["state"] != "absent":
        problems.found.append(f"format of {name} is unclear: end the name in .qcow2, .raw, .img or .iso, or set format")
    problems.refuse()
    return ImageSpec(
        name=name,
        pool=params["pool"],
        state=params["state"],
        format=form or "qcow2",  # nothing is made
        source=_source(params),
        checksum=checksum,
        bounds=_bounds(params),
        current=params["current"],
        prune=params["prune"],
        used_elsewhere=params["used_elsewhere"],
        update=params["update"],
        retries=params["retries"],
        signature=params["signature"],
        keyring=params["keyring"],
        certified=params.get("validate_certs", True),
        origin_pool=params["origin_pool"] or params["pool"],
    )


def _bounds(params: t.Mapping[str, t.Any]) -> Bounds:
    most = units.bytes_of(params["max_size"], bare="G", what="max_size")
    return Bounds(params["name"], most, reserve_of(params["reserve"]))


def _checksum(params: t.Mapping[str, t.Any]) -> Checksum | Sums | None:
    given = params["checksum"]
    if given is None and params["url"] and params["state"] == "present":
        raise BadInput(
            f"checksum of {params['name']} is missing: nothing is downloaded unverified; set it, or set checksum: none"
        )
    return None if given in (None, "none") else parse_checksum(given)


def _source(params: t.Mapping[str, t.Any]) -> Source | None:
    if params["url"]:
        return Source("url", params["url"])
    if params["src"]:
        return Source("file" if params["remote_src"] else "upload", params["src"])
    if params["origin"]:
        return Source("origin", params["origin_uri"] or tls(params["origin"]))
    return None


def _about_source(params: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    given = [option for option in _SOURCES if params[option]]
    if given[1:]:
        yield f"{' and '.join(given)} are mutually exclusive; set one source of the image"


def _contradictions(params: t.Mapping[str, t.Any], checksum: Checksum | Sums | None) -> t.Iterator[str]:
    if params["url"] and not is_url(params["url"]):
        yield f"url: {without_secrets(params['url'])!r} must begin with http:// or https://"
    if not params["current"] and (checksum is None or params["state"] == "absent" or params["prune"]):
        yield (
            "current: false imports one content and leaves the name unchanged; set checksum to choose it, and omit "
            "state and prune"
        )
    if not params["update"] and (not params["current"] or params["state"] == "absent"):
        yield "update: false keeps the image that exists; omit current and state"
    if params["retries"] < 0:
        yield f"retries: must be at least 0, not {params['retries']}"
    yield from _about_signature(params, isinstance(checksum, Sums))


def _about_signature(params: t.Mapping[str, t.Any], sums: bool) -> t.Iterator[str]:
    signature, keyring = params["signature"], params["keyring"]
    if signature and not sums:
        yield "signature: it signs a list of checksums; set checksum to the URL of that list"
    if signature and not keyring:
        yield "signature: set keyring to the keys that are trusted to sign the list"
    if keyring and not signature:
        yield "keyring: set signature to where the list's signature is (a URL, or inline)"
    if signature and signature != "inline" and not is_url(signature):
        yield f"signature: {without_secrets(signature)!r} must be inline, or begin with http:// or https://"
