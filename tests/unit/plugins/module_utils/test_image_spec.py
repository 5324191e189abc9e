"""What is asked of an image, what contradicts itself in it, and what the steps make of it, as tables."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import (
    BadInput,
    Failed,
    NotFound,
    Refused,
    VirtError,
)
from ansible_collections.corral.virt.plugins.module_utils._image import plan_image, plan_image_checks
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import (
    Checksum,
    Image,
    Manifest,
    Present,
    Source,
    Sums,
)
from ansible_collections.corral.virt.plugins.module_utils._image.plan_image_spec import (
    is_same_server,
    refuse_bypass,
    spec,
)
from ansible_collections.corral.virt.plugins.module_utils._image.run_image import OPTIONS
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import Bounds, FreeSpace

HEX = "ab" * 32
DIGEST = f"sha256:{HEX}"
SUMS = "https://there/SUMS"
URL = {"url": "https://there/debian-12.qcow2", "checksum": DIGEST}


def params(**output: t.Any) -> dict[str, t.Any]:
    return {**{name: option.get("default") for name, option in OPTIONS.items()}, "name": "debian-12.qcow2", **output}


@pytest.mark.parametrize(
    ("said", "problems"),
    [
        ({}, []),
        (URL, []),
        ({**URL, "checksum": "none"}, []),
        ({**URL, "state": "absent", "checksum": None}, []),
        ({**URL, "checksum": None}, ["checksum of debian-12.qcow2 is missing"]),
        ({"checksum": None, "src": "/x"}, []),
        ({"name": "../x.raw"}, ["name"]),
        ({"name": "x"}, ["format of x is unclear"]),
        ({"name": "x", "format": "raw"}, []),
        ({"name": "x", "state": "absent"}, []),
        ({"max_size": "much"}, ["max_size"]),
        ({"max_size": "much", "retries": -1}, ["max_size", "retries"]),
        ({"reserve": "much"}, ["reserve"]),
        ({**URL, "src": "/x"}, ["url and src are mutually exclusive"]),
        (
            {"src": "/x", "origin": "hyper1", "checksum": "odd"},
            ["src and origin are mutually exclusive", "checksum: cannot read"],
        ),
        ({**URL, "url": "ftp://there/x"}, ["url: 'ftp://there/x' must begin"]),
        ({**URL, "url": "http://there/x"}, []),
        ({**URL, "current": False}, []),
        ({"current": False}, ["current: false"]),
        ({**URL, "current": False, "state": "absent"}, ["current: false"]),
        ({**URL, "current": False, "prune": True}, ["current: false"]),
        ({"retries": 0}, []),
        ({"retries": -1}, ["retries: must be at least 0, not -1"]),
        ({**URL, "checksum": SUMS, "signature": "inline", "keyring": "k"}, []),
        ({**URL, "checksum": SUMS, "signature": "https://there/sig", "keyring": "k"}, []),
        ({**URL, "checksum": SUMS, "signature": "sig", "keyring": "k"}, ["signature: 'sig' must be inline"]),
        ({**URL, "checksum": SUMS, "signature": "inline"}, ["signature: set keyring"]),
        ({**URL, "checksum": SUMS, "keyring": "k"}, ["keyring: set signature"]),
        ({**URL, "signature": "inline", "keyring": "k"}, ["signature: it signs a list of checksums"]),
    ],
)
def test_contradictions(said: dict[str, t.Any], problems: list[str]) -> None:
    found: list[str] = []
    try:
        spec(params(**said))
    except BadInput as error:
        found = error.problems
    assert len(found) == len(problems) and all(text.startswith(start) for text, start in zip(found, problems)), found


@pytest.mark.parametrize(
    ("said", "source"),
    [
        ({}, None),
        (URL, Source("url", URL["url"])),
        ({"src": "/x.raw"}, Source("upload", "/x.raw")),
        ({"src": "/x.raw", "remote_src": True}, Source("file", "/x.raw")),
        ({"origin": "hyper1"}, Source("origin", "qemu+tls://hyper1/system")),
        ({"origin": "hyper1", "origin_uri": "qemu+ssh://hyper1/system"}, Source("origin", "qemu+ssh://hyper1/system")),
    ],
)
def test_where_it_comes_from(said: dict[str, t.Any], source: Source | None) -> None:
    assert spec(params(**said)).source == source


def test_what_is_said_is_kept() -> None:
    found = spec(params(**{**URL, "checksum": SUMS}, pool="fast", max_size="1", reserve="0", validate_certs=False))
    assert (found.format, found.checksum, found.origin_pool, found.certified) == (
        "qcow2",
        Sums(None, SUMS),
        "fast",
        False,
    )
    assert (found.bounds.image, found.bounds.max_bytes, found.bounds.reserve_bytes) == ("debian-12.qcow2", 1024**3, 0)
    other = spec(params(name="x.qcow2", format="raw", origin_pool="theirs", checksum="none"))
    assert (other.format, other.checksum, other.origin_pool, other.certified) == ("raw", None, "theirs", True)
    assert spec(params(name="x", state="absent")).format == "qcow2"


def test_only_the_controller_reads_the_catalogue() -> None:
    refuse_bypass({"catalogue": None})
    with pytest.raises(BadInput, match="only the controller can read it"):
        refuse_bypass({"catalogue": "images.yml"})


SOURCE = Source("origin", "qemu+tls://hyper1/system")
CHECKSUM = Checksum("sha256", HEX)
IMAGE = Image("debian-12.qcow2", "/images", "qcow2", SOURCE, CHECKSUM)
CONTENT = f"debian-12.{HEX[:12]}.qcow2"
OLD = "debian-12.000000000000.qcow2"


def image(**more: t.Any) -> Image:
    return Image(
        **{
            "name": IMAGE.name,
            "directory": "/images",
            "format": "qcow2",
            "source": SOURCE,
            "checksum": CHECKSUM,
            **more,
        }
    )


def manifest(**more: t.Any) -> Manifest:
    known: dict[str, t.Any] = {
        "content": CONTENT,
        "sha256": HEX,
        "bytes": 1,
        "source": "there",
        "checksum": DIGEST,
        "fetched": "",
    }
    return Manifest(**{**known, **more})


KEPT = Present(None, frozenset({CONTENT}))


@pytest.mark.parametrize(
    ("wanted", "known", "expected"),
    [
        (image(), None, True),
        (image(doubt="plain http"), None, False),
        (image(), manifest(), True),
        (image(), manifest(checksum=f"sha256:{'0' * 64}"), False),
        (image(doubt="plain http"), manifest(), False),
        (image(doubt="plain http"), manifest(verified=True), True),
    ],
)
def test_what_is_verified(wanted: Image, known: Manifest | None, expected: bool) -> None:
    assert plan_image.is_verified(wanted, known) is expected
    [*warnings] = plan_image.warnings(wanted)
    assert warnings == [
        f"image {IMAGE.name} is NOT verified: {doubt}; set checksum to the digest itself, or to a list that is fetched "
        "over https or signed (signature, keyring)"
        for doubt in filter(None, [wanted.doubt])
    ]


@pytest.mark.parametrize(
    ("wanted", "steps", "said", "content", "changes"),
    [
        (image(), [], {"before": CONTENT}, CONTENT, []),
        (image(), [plan_image.Symlink(IMAGE, CONTENT)], {"before": OLD}, CONTENT, [Change("image", OLD, CONTENT)]),
        (image(), [plan_image.Symlink(IMAGE, None)], {}, None, [Change("image", None, "(fetched)")]),
        (image(), [plan_image.Symlink(IMAGE, None)], {"fetched": OLD}, OLD, [Change("image", None, OLD)]),
        (image(current=False), [], {"before": OLD}, CONTENT, []),
        (
            image(current=False),
            [plan_image.Fetch(IMAGE)],
            {},
            CONTENT,
            [Change(f"content {CONTENT}", "absent", "present")],
        ),
        (image(checksum=None), [], {"before": OLD}, OLD, []),
        (image(checksum=None, current=False), [], {"before": OLD}, OLD, []),
        (
            image(),
            [plan_image.Remove(IMAGE, IMAGE.name), plan_image.Remove(IMAGE, CONTENT), plan_image.Remove(IMAGE, OLD)],
            {"before": CONTENT, "absent": True},
            None,
            [Change("image", CONTENT, None), Change(f"content {OLD}", "present", "absent")],
        ),
        (
            image(current=False),
            [plan_image.Remove(IMAGE, OLD)],
            {"absent": True},
            None,
            [Change(f"content {OLD}", "present", "absent")],
        ),
    ],
)
def test_outcome(
    wanted: Image, steps: list[plan_image.ImageStep], said: dict[str, t.Any], content: str | None, changes: list[Change]
) -> None:
    found = plan_image.outcome(wanted, steps, **{"before": None, "absent": False, "fetched": None, **said})
    assert (found.content, list(found.changes)) == (content, changes)


UNPACKED = manifest(as_published=False, sha256="0" * 64)


@pytest.mark.parametrize(
    ("wanted", "offers", "expected"),
    [
        (image(), [None, manifest()], manifest()),
        (image(), [manifest(checksum=f"sha256:{'0' * 64}", sha256="0" * 64), manifest()], manifest()),
        (image(), [None, None], "NotFound contains no " + CONTENT),
        (image(checksum=None), [None], "NotFound contains no debian-12.qcow2 imported"),
        (image(), [UNPACKED], "Unverified from qemu+tls://hyper1/system: it was unpacked or converted there"),
        (image(), [manifest(checksum=f"sha512:{'0' * 128}")], manifest(checksum=f"sha512:{'0' * 128}")),
        (
            image(),
            [manifest(checksum=f"sha256:{'0' * 64}", sha256="0" * 64)],
            f"Refused from qemu+tls://hyper1/system: it is {CONTENT} made from sha256:{'0' * 64}, not what was requested",
        ),
        (image(checksum=None), [manifest(content="other.raw")], "Refused not what was requested"),
    ],
)
def test_what_is_taken_of_another_hypervisor(
    wanted: Image, offers: list[Manifest | None], expected: Manifest | str
) -> None:
    found: Manifest | str
    try:
        found = plan_image_checks.chosen(wanted, SOURCE, "default", offers)
    except VirtError as error:
        kind, _space, words = str(expected).partition(" ")
        assert words in str(error)
        found = f"{type(error).__name__} {words}"
        assert kind == type(error).__name__
    assert found == expected


OTHER = Checksum("sha256", "cd" * 32)


@pytest.mark.parametrize(
    ("check", "refusal"),
    [
        (lambda: plan_image_checks.refuse_other_bytes(IMAGE, SOURCE, CHECKSUM), None),
        (lambda: plan_image_checks.refuse_other_bytes(image(checksum=None), SOURCE, OTHER), None),
        (lambda: plan_image_checks.refuse_other_bytes(IMAGE, SOURCE, OTHER), Failed),
        (lambda: plan_image_checks.refuse_other_copy(IMAGE, SOURCE, manifest(), CHECKSUM), None),
        (lambda: plan_image_checks.refuse_other_copy(IMAGE, SOURCE, manifest(), OTHER), Failed),
        (lambda: plan_image_checks.refuse_other_copy(image(checksum=None), SOURCE, manifest(), OTHER), None),
        (lambda: plan_image_checks.refuse_namesake(IMAGE, None), None),
        (lambda: plan_image_checks.refuse_namesake(IMAGE, manifest()), None),
        (lambda: plan_image_checks.refuse_namesake(image(checksum=None), manifest()), None),
        (lambda: plan_image_checks.refuse_namesake(IMAGE, manifest(checksum=str(OTHER))), Refused),
        (lambda: plan_image_checks.refuse_unsent(SOURCE, size_bytes=1), None),
        (lambda: plan_image_checks.refuse_unsent(SOURCE, size_bytes=0), Failed),
        (lambda: plan_image_checks.refuse_other_format(IMAGE, "qcow2"), None),
        (lambda: plan_image_checks.refuse_other_format(IMAGE, "raw"), Refused),
        (lambda: plan_image_checks.refuse_more_files(IMAGE, []), None),
        (lambda: plan_image_checks.refuse_more_files(IMAGE, ["/etc/shadow"]), Refused),
    ],
)
def test_what_arrived(check: t.Callable[[], None], refusal: type[VirtError] | None) -> None:
    if refusal is None:
        check()
        return
    with pytest.raises(refusal, match=r"^(refusing image debian-12.qcow2|cannot fetch)"):
        check()


def test_an_address_that_cannot_be_read_keeps_its_secret() -> None:
    assert str(plan_image_checks.unread("https://me:secret@there/x", "404")).startswith("cannot fetch https://")
    assert "secret" not in str(plan_image_checks.unread("https://me:secret@there/x", "404"))
    assert not isinstance(plan_image_checks.unread("x", ""), NotFound)


@pytest.mark.parametrize(
    ("location", "url", "same"),
    [
        ("https://there/SUMS", "https://there/debian-12.qcow2", True),
        ("https://there:8443/SUMS", "https://there/debian-12.qcow2", False),
        ("http://there/SUMS", "https://there/debian-12.qcow2", False),
        ("https://elsewhere/SUMS", "https://there/debian-12.qcow2", False),
        ("https://there/SUMS", "", False),
    ],
)
def test_only_the_server_of_the_url_is_told_who_the_user_is(location: str, url: str, same: bool) -> None:
    assert is_same_server(location, url) is same


@pytest.mark.parametrize(
    ("place", "taken_bytes", "most_bytes"),
    [
        (FreeSpace(1000, 500, 100), 0, 300),
        (FreeSpace(1000, 350, 100), 0, 250),
        (FreeSpace(1000, 350, 100), 40, 290),
        (FreeSpace(1000, 350, 100), 90, 300),
        (FreeSpace(1000, 50, 100), 0, 0),
    ],
)
def test_how_large_an_image_may_become(place: FreeSpace, taken_bytes: int, most_bytes: int) -> None:
    assert Bounds("a.qcow2", 300).most_bytes(place, taken_bytes=taken_bytes) == most_bytes


@pytest.mark.parametrize(
    ("checksum", "kind", "digest", "anew"),
    [
        (Checksum("sha256", HEX), "url", "00", True),
        (Checksum("sha256", HEX), "url", HEX, False),
        (Checksum("sha256", HEX), "file", "00", False),
        (None, "url", "00", False),
    ],
)
def test_what_an_earlier_run_left_of_something_else_is_fetched_anew(
    checksum: Checksum | None, kind: str, digest: str, anew: bool
) -> None:
    source = Source(kind, "https://there/debian-12.qcow2")
    image = Image("debian-12.qcow2", "/p", "qcow2", source, checksum)
    assert plan_image_checks.starts_over(image, source, digest) is anew


FOREIGN = Present(None, frozenset({IMAGE.name}), foreign=True)


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        (image(), FOREIGN, f"cannot manage image {IMAGE.name}: /images/{IMAGE.name} is a regular file .* move it away"),
        (image(current=False), FOREIGN, [plan_image.Fetch(image(current=False))]),
        (image(source=None), FOREIGN, "cannot manage image"),
        (image(source=None), Present(None, frozenset()), f"image {IMAGE.name} is not in the pool as {CONTENT}; set"),
        (image(source=None, checksum=None), Present(None, frozenset()), f"image {IMAGE.name} is not in the pool; set"),
        (image(source=None), KEPT, [plan_image.Symlink(image(source=None), CONTENT)]),
    ],
)
def test_what_stands_where_an_image_goes(
    wanted: Image, found: Present, expected: list[plan_image.ImageStep] | str
) -> None:
    if isinstance(expected, list):
        assert plan_image.present(wanted, found) == expected
        return
    with pytest.raises(VirtError, match=expected):
        plan_image.present(wanted, found)
