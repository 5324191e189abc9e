"""Images by their names in the catalogue, from a mirror on this machine: playbooks on pools of the test driver."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.contract.play import defaults
from ansible_collections.corral.virt.tests.contract.unreliable import Server, serving
from ansible_collections.corral.virt.tests.tools import preloaded

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img: install qemu-utils"),
]
POOL = "<node><pool type='dir'><name>default</name><target><path>{}</path></target></pool>{}</node>"
GUEST = """<domain type='test'><name>old</name><uuid>00000000-0000-0000-0000-000000000001</uuid><memory>65536</memory>
<os><type>hvm</type></os><devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{}'/>
<target dev='vda'/></disk></devices></domain>"""
DEBIAN = "/images/cloud/trixie/latest/debian-13-genericcloud-amd64.qcow2"
ROCKY = "/pub/rocky/10/images/x86_64/Rocky-10-GenericCloud-Base.latest.x86_64.qcow2"


# The test driver's host is an i686.
HERE: dict[str, dict[str, t.Any]] = {"debian-13": {"arch": {"i686": "amd64"}}, "rocky-10": {"arch": {"i686": "x86_64"}}}


def qcow2(place: Path, size: str) -> bytes:
    """An empty image of that size."""
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(place / "made"), size], check=True)
    return (place / "made").read_bytes()


def publish(server: Server, path: str, content: bytes) -> None:
    """A version of a vendor's image, with its list."""
    folder, _slash, name = path.rpartition("/")
    server.files[path] = content
    if path == DEBIAN:
        server.files[f"{folder}/SHA512SUMS"] = f"{hashlib.sha512(content).hexdigest()}  {name}\n".encode()
    else:
        server.files[f"{folder}/CHECKSUM"] = f"SHA256 ({name}) = {hashlib.sha256(content).hexdigest()}\n".encode()


class Site:
    """A hypervisor with an empty pool, and a mirror."""

    def __init__(self, place: Path, server: Server) -> None:
        self.place, self.server, self.pool, self.code = place, server, place / "pool", 0
        self.pool.mkdir()
        self.host()

    def host(self, guest: str = "", **variables: t.Any) -> None:
        """What the hypervisor has, and what the inventory says."""
        (self.place / "h1.xml").write_text(POOL.format(self.pool, guest))
        known = {
            "virt_uri": f"test://{self.place / 'h1.xml'}",
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "virt_images_mirror": self.server.url,
            "virt_images_catalogue": HERE,
        }
        hosts = {"hyper": {"hosts": {"h1": {**known, **variables}}}}
        (self.place / "hosts.yml").write_text(json.dumps({"all": {"children": hosts}}))

    def do(self, action: str, *flags: str, **arguments: t.Any) -> str:
        """What a playbook printed, in one line."""
        words = ["ansible-playbook", "-i", "hosts.yml", f"corral.virt.{action}", "-e", json.dumps(arguments), *flags]
        environment = defaults(CORRAL_VIRT_KNOWN_HOSTS=str(self.place / "known_hosts"))
        done = preloaded.run(words, cwd=self.place, env=environment, timeout_s=120, given=None)
        self.code = done.returncode
        return re.sub(r"\s+", " ", done.stdout + done.stderr)

    def files(self) -> dict[str, str]:
        """Names in the pool, and where they lead."""
        found = [path for path in sorted(self.pool.iterdir()) if not path.name.startswith(".")]
        return {path.name: str(path.readlink()) if path.is_symlink() else "" for path in found}


@pytest.fixture
def site(tmp_path: Path) -> t.Iterator[Site]:
    with serving({}) as server:
        publish(server, DEBIAN, qcow2(tmp_path, "1M"))
        publish(server, ROCKY, qcow2(tmp_path, "2M"))
        yield Site(tmp_path, server)


def content(name: str, body: bytes, algorithm: str) -> str:
    """The file of a version in the pool."""
    return f"{name}.{hashlib.new(algorithm, body).hexdigest()[:12]}.qcow2"


def test_the_life_of_an_image(site: Site, tmp_path: Path) -> None:
    """Fetched, found to be old, updated, and removed where no guest is based on it; nothing but the mirror is asked."""
    first, second = site.server.files[DEBIAN], qcow2(tmp_path, "3M")
    old, new = content("debian-13", first, "sha512"), content("debian-13", second, "sha512")
    output = site.do("images", "--check", do="fetch", image="debian-13")
    assert (site.code, site.files()) == (0, {}), output
    output = site.do("images", do="fetch", image="debian-13,rocky-10")
    assert site.code == 0, output
    assert site.files()["debian-13.qcow2"] == old and (site.pool / old).read_bytes() == first
    site.server.asked.clear()
    assert "changed=0" in site.do("images", do="fetch", image="debian-13"), "a second run"
    assert site.server.asked == [], "what is there need not be asked for"
    assert "newer upstream: 0" in site.do("images", do="update") and site.code == 0

    publish(site.server, DEBIAN, second)
    site.host(GUEST.format(site.pool / old))
    assert "newer upstream: 1 debian-13.qcow2" in site.do("images", "--check", do="update")
    assert site.files()["debian-13.qcow2"] == old
    assert "newer upstream: 1 debian-13.qcow2" in site.do("images", do="update")
    assert site.files()["debian-13.qcow2"] == new

    listed = json.loads(
        site.do("images", "-e", "out=list.json", format="json") and (tmp_path / "list.json").read_text()
    )
    [host] = listed["hosts"]
    assert {one["name"]: (one["used"], one["contents"]) for one in host["images"]} == {
        "debian-13.qcow2": (True, 2),
        "rocky-10.qcow2": (False, 1),
    }
    output = site.do("images")
    assert re.search(r"h1 debian-13.qcow2 default \S+ \S+ KiB 2 yes no http://127.0.0.1:\d+/images/cloud/", output), (
        output
    )

    for do in ("prune", "update"):
        output = site.do("images", do=do, image=["debain-13", "debian-13"])
        assert "no hypervisor has debain-13 in pool default; choose of debian-13.qcow2, rocky-10.qcow2" in output
        assert site.code == 2
    assert "no hypervisor has rocky-9 " in site.do("images", do="prune", image="rocky-9"), "which the catalogue has"
    assert "newer upstream: 0" in site.do("images", "--check", do="update", image="rocky-9")
    output = site.do("images", do="prune", image="debian-13")
    assert site.code == 0 and f"kept {old}: guest old uses it" in output

    output = site.do("images", do="prune", unused=True)
    assert f"kept {old}: guest old uses it" in output
    assert site.files() == {"debian-13.qcow2": new, new: "", old: ""}, "the image of no guest is gone"
    site.host()
    output = site.do("images", "--check", do="prune")
    assert f"remove {old}" in output and old in site.files()
    site.do("images", do="prune")
    assert site.files() == {"debian-13.qcow2": new, new: ""}, "without `unused`, current contents stay"
    hosts = {path for path, _range in site.server.asked}
    assert hosts and all(path.startswith(("/images/cloud/", "/pub/rocky/")) for path in hosts)


def test_an_image_that_nobody_knows_is_refused_before_anything_is_asked(site: Site) -> None:
    output = site.do("images", do="fetch", image="debain-13")
    assert site.code and "did you mean debian-13" in output and "virt_images_catalogue" in output
    output = site.do("create", guest="web1", image="debain-13")
    assert site.code and "did you mean debian-13" in output and site.server.asked == []
    assert "image" in site.do("create", guest="web1", image="golden") and site.code


def test_the_site_has_images_of_its_own(site: Site, tmp_path: Path) -> None:
    """Under their own addresses; and the mirror is a server like any other."""
    site.server.files["/ours/app.qcow2"] = body = qcow2(tmp_path, "5M")
    own = {"url": f"{site.server.url}/ours/app.qcow2", "checksum": f"sha256:{hashlib.sha256(body).hexdigest()}"}
    site.host(virt_images_catalogue={**HERE, "app": {**own, "user": "app"}}, virt_images=["app", {"name": "rocky-10"}])
    output = site.do("images", do="fetch")
    assert site.code == 0, output
    assert {name for name, link in site.files().items() if link} == {"app.qcow2", "rocky-10.qcow2"}


def test_create_fetches_what_the_pool_lacks_and_says_so_before(site: Site) -> None:
    wish = {"guest": "web1", "image": "debian-13", "interfaces": []}
    output = site.do("create", "--check", **wish)
    assert site.code == 0, output
    assert f"h1 would fetch debian-13 from {site.server.url}{DEBIAN}." in output
    assert "h1 would create web1." in output and site.files() == {}
    site.do("create", **wish)  # the test driver sees no file that appears in a directory
    assert site.files()["debian-13.qcow2"] == content("debian-13", site.server.files[DEBIAN], "sha512")
    site.server.asked.clear()
    site.do("create", **wish)
    assert site.server.asked == [], "no guest needs a newer one than there is"


def test_a_mirror_that_lies_is_not_believed(site: Site) -> None:
    site.server.files[DEBIAN] = b"QFI\xfb" + b"\0" * 4096
    output = site.do("images", do="fetch", image="debian-13")
    assert "refusing image debian-13.qcow2" in output and site.code, output
    assert site.files() == {}


def test_an_iso_is_imported_for_those_who_insert_it(site: Site) -> None:
    """In check mode nothing is; one with other bytes than its list says is inserted nowhere."""
    iso = bytes(32769) + b"CD001" + bytes(4096)
    place = "/archlinux/iso.iso"
    own = {"url": f"{site.server.url}{place}", "sums": f"{site.server.url}/archlinux/sums", "medium": "iso"}
    site.host(GUEST.format(site.pool / "old.qcow2"), virt_images_catalogue={"tools": own})
    site.server.files |= {place: iso, "/archlinux/sums": f"{hashlib.sha256(b'other').hexdigest()}  iso.iso\n".encode()}
    inserted = {"guest": "old", "iso": "tools"}
    assert site.do("insert_iso", **inserted) and site.code == 2 and site.files() == {}
    site.server.files["/archlinux/sums"] = f"{hashlib.sha256(iso).hexdigest()}  iso.iso\n".encode()
    told = site.do("insert_iso", "--check", **inserted)
    assert site.code == 0 and site.files() == {} and f"h1 would fetch tools from {own['url']}." in told, told
    drive = "<disk type='file' device='cdrom'><target dev='sda' bus='sata'/><readonly/></disk></devices>"
    site.host(GUEST.replace("</devices>", drive).format(site.pool / "old.qcow2"), virt_images_catalogue={"tools": own})
    told = site.do("insert_iso", "--check", **inserted, drive="sda")
    assert site.code == 0 and "h1 would fetch tools" in told, "a guest that runs needs it now, and check mode has none"
    told = site.do("insert_iso", **inserted)
    assert "tools.iso" in site.files() and (site.pool / "tools.iso").read_bytes() == iso, told
    assert "define old" in told and site.code == 0, told
