"""Whose word it is that an image is what was asked for, and what of its address anybody may see."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.urls import open_url

from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._image import run_image
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_image_trust
from ansible_collections.corral.virt.tests.contract.signing import signing
from ansible_collections.corral.virt.tests.contract.unreliable import Server, serving

NODE = "<node><pool type='dir'><name>default</name><target><path>{}</path></target></pool></node>"
BODY = b"x" * 4096
DIGEST = hashlib.sha256(BODY).hexdigest()


class Secured:
    """An answer as from the same server over https."""

    def __init__(self, answer: t.Any, url: str) -> None:
        self._answer, self._url = answer, url

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self._answer, name)

    def __enter__(self) -> Secured:
        return self

    def __exit__(self, *_ignored: object) -> None:
        self._answer.close()

    def geturl(self) -> str:
        """Where redirects led to."""
        return self._url


def opener(location: str, headers: t.Mapping[str, str]) -> t.Any:
    answer = open_url(location.replace("https:", "http:"), headers=headers, timeout=5, decompress=False)
    return Secured(answer, location if "/moved/" not in location else answer.geturl())


@pytest.fixture
def server() -> t.Iterator[Server]:
    with serving({"/disk.raw": BODY, "/SUMS": f"{DIGEST}  disk.raw\n".encode()}) as running:
        yield running


@pytest.fixture
def connection(tmp_path: Path) -> t.Iterator[t.Any]:
    (tmp_path / "pool").mkdir()
    (tmp_path / "node.xml").write_text(NODE.format(tmp_path / "pool"))
    with opened(f"test://{tmp_path / 'node.xml'}") as found:
        yield found


def converged(connection: t.Any, *, check_mode: bool = False, **output: t.Any) -> dict[str, t.Any]:
    params = {
        **{name: option.get("default") for name, option in run_image.OPTIONS.items()},
        "name": "disk.raw",
        "retries": 0,
        **output,
    }
    return run_image.converge(connection, params, Gate(check_mode=check_mode), run_image.World(opener, opened))


def manifest(tmp_path: Path) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads((tmp_path / "pool/.disk.raw.json").read_text()))


@pytest.mark.parametrize(
    "way", ["http list", "https list that leads to http", "no certificate", "none", "https list", "digest", "signature"]
)
def test_only_what_nobody_on_the_way_can_write_is_called_verified(
    connection: t.Any, server: Server, tmp_path: Path, way: str
) -> None:
    secure = server.url.replace("http:", "https:")
    checksum = {"digest": f"sha256:{DIGEST}", "none": "none", "https list that leads to http": f"{secure}/moved/SUMS"}
    output: dict[str, t.Any] = {"url": f"{server.url}/disk.raw", "checksum": checksum.get(way, f"{secure}/SUMS")}
    if way in ("http list", "signature"):
        output["checksum"] = f"{server.url}/SUMS"
    if way == "no certificate":
        output["validate_certs"] = False
    if way == "signature":
        (tmp_path / "gnupg").mkdir()
        with signing(tmp_path / "gnupg", "vendor") as gpg:
            server.files["/SUMS.gpg"] = gpg(
                "--local-user", "vendor@example.org", "--detach-sign", given=server.files["/SUMS"]
            )
            output |= {
                "signature": f"{server.url}/SUMS.gpg",
                "keyring": gpg("--armor", "--export", "vendor@example.org").decode(),
            }
    verified, asked = way in ("https list", "digest", "signature"), way != "none"
    for result in (converged(connection, check_mode=True, **output), converged(connection, **output)):
        assert result["verified"] is verified
        assert result["steps"][0].startswith(
            f"fetch image disk.raw, {'verified by sha256' if verified else 'NOT verified'}"
        )
        assert [("is NOT verified" in text) for text in result["warnings"]] == [True] * (asked and not verified)
    assert manifest(tmp_path)["verified"] is verified
    again = converged(connection, **output)
    assert (again["changed"], again["verified"]) == (False, verified)
    assert len(again["warnings"]) == (asked and not verified)
    if asked:
        assert converged(connection, url=output["url"], checksum=f"sha256:{DIGEST}")["verified"], (
            "the same content, asked for by its digest"
        )


@pytest.mark.parametrize(
    ("sums", "origin", "signed", "certified", "doubt"),
    [
        ("https://a", "https://a", False, True, ""),
        ("https://a", "https://a", False, False, "a server whose certificate was not checked"),
        ("https://a", "http://a", False, True, "plain http"),
        ("http://a", "https://a", False, True, "plain http"),
        ("http://a", "http://a", True, False, ""),
    ],
)
def test_what_a_list_proves(sums: str, origin: str, signed: bool, certified: bool, doubt: str) -> None:
    output = plan_image_trust.doubt(sums, origin, signed=signed, certified=certified)
    assert bool(output) == bool(doubt) and doubt in output


SECRET = "S3CRET"


@pytest.mark.parametrize("trouble", ["", "missing", "damaged", "no list", "no such sum", "no address"])
def test_no_secret_of_an_address_is_told_or_kept(
    connection: t.Any, server: Server, tmp_path: Path, trouble: str
) -> None:
    """In no result, manifest, file or error."""
    url = server.url.replace("://", f"://user:{SECRET}@") + f"/disk.raw?X-Amz-Signature={SECRET}"
    sums = server.url.replace("://", f"://user:{SECRET}@") + f"/SUMS?token={SECRET}"
    body = {"damaged": b"y" * 4096}.get(trouble, BODY)
    text = f"{DIGEST}  {'other' if trouble == 'no such sum' else 'disk.raw'}\n".encode()
    server.files = {f"/disk.raw?X-Amz-Signature={SECRET}": body, f"/SUMS?token={SECRET}": text}
    if trouble == "missing":
        del server.files[f"/disk.raw?X-Amz-Signature={SECRET}"]
    if trouble == "no list":
        del server.files[f"/SUMS?token={SECRET}"]
    if trouble == "no address":
        url += " is it"
    try:
        result = json.dumps([converged(connection, url=url, checksum=sums)])
        assert not trouble
    except VirtError as error:
        result = str(error)
        assert trouble, result
    assert SECRET not in result and re.search(r"http://127\.0\.0\.1:\d+/(disk\.raw|SUMS)\b", result), result
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET.encode() not in kept
