"""Volumes and secrets on a host: judged by qemu-img, sha256sum, virsh and the files themselves."""

from __future__ import annotations

import base64
import functools
import json
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, Hypervisors, hypervisors

pytestmark = pytest.mark.lab

LAB = Hypervisors("volumes")
on = functools.partial(LAB.on, "hyper1")
CANARY = "C4nary5ecret"
PASSPHRASE = f"{CANARY}-of-the-disk"
HOSTILE = ["a b", "-rf", "a'b\"c", "ü&<x>", "$(id)", "%s", "a" * 230]


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """A hypervisor with files to upload."""
    with hypervisors("volumes"):
        on("head -c 40M /dev/urandom > /root/data && truncate -s 64M /root/data")
        yield


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """What a test makes goes with it."""
    yield
    on(
        "for g in $(virsh list --all --name); do virsh -q destroy $g; virsh -q undefine $g; done 2>/dev/null; "
        f"find {IMAGES} -mindepth 1 -delete; virsh -q pool-refresh default; "
        "for s in $(virsh secret-list | awk 'NR>2 {print $1}'); do virsh -q secret-undefine $s; done"
    )


def told(module: str, *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    """What a module answers."""
    return t.cast(
        "dict[str, t.Any]",
        LAB.tell({f"corral.virt.{module}": options, "register": "told"}, hosts="hyper1", check=check)["hyper1"],
    )


def volume(name: str, *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    """What virt_volume answers."""
    return told("virt_volume", check=check, name=name, pool="default", **options)


def refused(name: str, **options: t.Any) -> str:
    """Why virt_volume refuses."""
    return LAB.module("virt_volume", ok=False, name=name, pool="default", **options)


def four_steps(name: str, **options: t.Any) -> list[str]:
    """Check, do, check again, do again; the steps."""
    options = {"name": name, "pool": "default", **options}
    return t.cast("list[str]", LAB.four_steps("virt_volume", options, f"ls -l {IMAGES}")[0]["steps"])


def image(name: str) -> dict[str, t.Any]:
    """What qemu-img says of a volume."""
    return t.cast("dict[str, t.Any]", json.loads(on(f"qemu-img info -U --output=json '{IMAGES}/{name}'")))


def digest(path: str) -> str:
    """Of a file's content."""
    return on(f"sha256sum < '{path}'")


def test_an_empty_volume_grows_and_shrinks_only_when_told() -> None:
    assert four_steps("a", capacity="1GiB") == ["create volume a of pool default (qcow2, 1GiB)"]
    assert (image("a")["format"], image("a")["virtual-size"]) == ("qcow2", 1024**3)
    assert four_steps("a", capacity="2GiB") == ["resize volume a of pool default to 2GiB"]
    assert image("a")["virtual-size"] == 2 * 1024**3
    assert "what is behind its new end is lost" in refused("a", capacity="1GiB")
    assert image("a")["virtual-size"] == 2 * 1024**3
    four_steps("a", capacity="1GiB", shrink=True)
    assert image("a")["virtual-size"] == 1024**3
    assert "it keeps what it was created with" in refused("a", format="raw")
    four_steps("b", capacity="8MiB", format="raw", preallocate=True, mode="0640", owner=1, group=2)
    assert on(f"stat -c '%a %u %g %b' {IMAGES}/b") == f"640 1 2 {8 * 2048}"


@pytest.mark.deep
def test_an_encrypted_volume_opens_with_its_secret_alone() -> None:
    secret = told("virt_secret", name=f"{IMAGES}/s", usage="volume", value=PASSPHRASE)["secret"]
    assert on(f"virsh secret-get-value {secret['uuid']}") == base64.b64encode(PASSPHRASE.encode()).decode()
    assert "secret of volume s of pool default" in refused("s", capacity="8MiB", encryption="luks")
    four_steps("s", capacity="8MiB", encryption="luks", secret=secret["uuid"])
    assert image("s")["format"] == "luks"
    key = f"--object secret,id=k,data={PASSPHRASE}"
    opened = f"qemu-io {key} -c 'read 0 512' --image-opts driver=luks,key-secret=k,file.filename={IMAGES}/s"
    assert "read 512/512" in on(opened)
    on(opened.replace(PASSPHRASE, "other"), ok=False)
    four_steps("s", capacity="16MiB")
    assert image("s")["virtual-size"] == 16 * 1024**2 and "read 512/512" in on(opened)
    four_steps("q", capacity="8MiB", format="qcow2", encryption="luks", secret=secret["uuid"])
    assert "gives qemu-img no secret" in refused("q", capacity="16MiB")
    four_steps("v", capacity="10MiB", format="vpc")


def test_a_secret_is_compared_and_never_shown() -> None:
    cases: tuple[dict[str, t.Any], ...] = (
        {"name": "client.a", "usage": "ceph", "value": f"{CANARY}1"},
        {"name": "client.a", "usage": "ceph", "value": f"{CANARY}2", "description": "of a"},
        {"name": "tls1", "usage": "tls", "value": base64.b64encode(b"\0\xff" * 9).decode(), "value_encoding": "base64"},
        {"name": "vtpm1", "usage": "vtpm", "value": f"{CANARY}3", "private": True},
    )
    for options in cases:
        task = {"corral.virt.virt_secret": options}
        said = LAB.play(task, flags=["-vvvv", "--diff"])
        assert CANARY not in said and options["value"] not in said
        assert not told("virt_secret", **options)["changed"]
    assert (
        on(
            "virsh secret-get-value $(virsh secret-list | awk '/tls1/ {print $1}') | base64 -d | od -An -tx1 | tr -d ' \n'"
        )
        == "00ff" * 9
    )
    found = told("virt_secret_info", arguments=True)["secrets"]
    assert [one["name"] for one in found] == ["client.a", "tls1", "vtpm1"] and CANARY not in json.dumps(found)
    for one in found:
        assert not told("virt_secret", **one["arguments"])["changed"]
    noted = told("virt_secret", name="vtpm1", usage="vtpm", value="another")
    assert not noted["changed"] and "nobody can tell" in noted["notes"][0]
    assert told("virt_secret", name="vtpm1", usage="vtpm", value="another", update_value="always")["changed"]
    assert "keeps a private secret private" in LAB.module(
        "virt_secret", ok=False, name="vtpm1", usage="vtpm", private=False
    )


@pytest.mark.deep
def test_a_secret_that_a_guest_names_stays() -> None:
    secret = told("virt_secret", name=f"{IMAGES}/s", usage="volume", value=PASSPHRASE)["secret"]
    xml = (
        "<domain type='qemu'><name>g</name><memory unit='MiB'>64</memory><os><type>hvm</type></os><devices><disk "
        f"type='file'><driver name='qemu' type='raw'/><source file='{IMAGES}/s'><encryption format='luks'><secret "
        f"type='passphrase' uuid='{secret['uuid']}'/></encryption></source><target dev='vda'/></disk></devices></domain>"
    )
    on("virsh -q define /dev/stdin", given=xml)
    gone: dict[str, t.Any] = {"name": f"{IMAGES}/s", "usage": "volume", "state": "absent"}
    assert "guest g need" in LAB.module("virt_secret", ok=False, **gone)
    assert on("virsh secret-list | grep -c volume") == "1"
    assert told("virt_secret", **gone, force=True)["steps"] == [f"undefine secret {IMAGES}/s of usage volume"]
    assert on("virsh secret-list | grep -c volume || true") == "0"


@pytest.mark.deep
def test_content_comes_and_goes_unchanged() -> None:
    assert len(four_steps("u", source="/root/data")) == 2
    assert digest(f"{IMAGES}/u") == digest("/root/data")
    assert int(on(f"stat -c %b {IMAGES}/u")) * 512 < 50 * 1024**2  # holes stay holes
    four_steps("c", clone_of="u", format="raw")
    assert digest(f"{IMAGES}/c") == digest("/root/data")
    assert four_steps("u", dest="/root/back") == ["download volume u of pool default to /root/back"]
    assert digest("/root/back") == digest("/root/data") and on("stat -c %a /root/back") == "600"
    on("qemu-img convert -O qcow2 /root/data /root/data.qcow2")
    four_steps("q", source="/root/data.qcow2", capacity="1GiB")
    assert (image("q")["format"], image("q")["virtual-size"]) == ("qcow2", 1024**3)
    on("qemu-img create -q -f qcow2 -b /root/data -F raw /root/over.qcow2")
    assert "it names /root/data" in refused("o", source="/root/over.qcow2")
    assert "it is qcow2, not raw" in refused("o", source="/root/data.qcow2", format="raw")
    on("truncate -s 64M /root/big && fallocate -l 4096 /root/big")
    assert on(f"ls {IMAGES}").split() == ["c", "q", "u"]


@pytest.mark.deep
@pytest.mark.parametrize("half", [b"", b"\1"])
def test_an_upload_that_was_cut_is_finished_by_the_same_task_only(half: bytes) -> None:
    on("head -c 700M /dev/urandom > /root/long")
    process = LAB.start(
        *(
            "ansible",
            "hyper1",
            "-m",
            "virt_volume",
            "-a",
            json.dumps({"name": "u", "pool": "default", "source": "/root/long"}),
        )
    )
    until(
        lambda: int(on(f"stat -c %b {IMAGES}/u 2>/dev/null || echo 0")) * 512 > 100 * 1024**2,
        120,
    )
    on("pkill -9 -f [v]irt_volume; pkill -9 -f '^/usr/bin/python3$'; true")
    process.wait()
    process.stdout and process.stdout.close()
    assert on(f"ls {IMAGES}").split() == ["u", "u.corral-unfinished"]
    for other in ({"capacity": "1GiB"}, {"source": "/root/data"}, {"dest": "/root/x"}):
        assert "an interrupted run was filling it with /root/long" in refused("u", **other)
    if half:
        on("printf x >> /root/long")  # it is another file now
        assert "an interrupted run was filling it" in refused("u", source="/root/long")
        assert volume("u", state="absent")["steps"] == ["delete volume u of pool default"]
        assert on(f"ls {IMAGES}") == ""
        return
    on(f"cd {IMAGES}; cp -a u.corral-unfinished /root/; truncate -s $(head -n 1 /root/u.corral-unfinished | wc -c) u.*")
    assert "or another volume of this name" in refused("u", source="/root/long")  # which one it made is not recorded
    on(f"cd {IMAGES}; mv u /root/u; truncate -s 700M u; virsh -q pool-refresh default")  # as right after its creation
    assert volume("u", source="/root/long", check=True)["steps"] == ["upload /root/long into volume u of pool default"]
    on(f"cd {IMAGES}; mv /root/u u; cp -a /root/u.corral-unfinished .; virsh -q pool-refresh default")
    assert volume("u", source="/root/long")["steps"] == ["upload /root/long into volume u of pool default"]
    assert on(f"ls {IMAGES}") == "u" and digest(f"{IMAGES}/u") == digest("/root/long")
    on("head -c 300M /root/long > /root/.half.corral-part; chmod 600 /root/.half.corral-part; rm -f /root/half")
    assert volume("u", dest="/root/half")["changed"]
    assert digest("/root/half") == digest("/root/long")


@pytest.mark.deep
def test_a_removal_that_was_cut_is_finished() -> None:
    on(f"head -c 700M /dev/urandom > {IMAGES}/gone && ln -f {IMAGES}/gone /root/witness")
    gone: dict[str, t.Any] = {"name": "gone", "pool": "default", "state": "absent", "wipe": True}
    killer = (
        f"for i in $(seq 6000); do ls {IMAGES}/.corral/.removed/*.disk && break; sleep 0.01; done; "
        "pkill -9 -f [v]irt_volume; pkill -9 -f ^/usr/bin/python3$"
    )
    on(f"nohup sh -c '{killer}' > /dev/null 2>&1 &")
    LAB.module("virt_volume", ok=False, **gone)
    assert on(f"ls {IMAGES}") == "" and on(f"find {IMAGES} -size +1M") != ""
    assert "finish the removal of volume gone" in four_steps("gone", state="absent", wipe=True)[0]
    assert on(f"find {IMAGES} -size +1M") == ""
    assert on("tr -d '\\0' < /root/witness | head -c 9 | wc -c; rm /root/witness") == "0"


@pytest.mark.deep
def test_a_name_that_is_no_text_and_a_pool_that_breaks_hide_nothing_else() -> None:
    on(f"truncate -s 1M {IMAGES}/good; truncate -s 1M {IMAGES}/$(printf 'b\\374d')")
    on(f"cd {IMAGES} && qemu-img create -q -f qcow2 -b {IMAGES}/good -F raw $(printf 'o\\374r')")
    on("mkdir -p /root/gone && virsh -q pool-create-as gone dir --target /root/gone && rmdir /root/gone")
    said = LAB.play({"corral.virt.virt_volume_info": {}, "register": "told"}, {"debug": {"var": "told"}})
    said += json.dumps(told("virt_volume_info"))
    assert '"name": "good"' in said and "not UTF-8" in said and "b\\xfcd" in said and "/root/gone" in said, said
    on("virsh -q pool-destroy gone; true")  # libvirt may have stopped it
    assert "o\\xfcr uses it" in refused("good", state="absent")
    assert volume("new", capacity="1MiB")["changed"] and not volume("new", capacity="1MiB")["changed"]
    assert volume("new", state="absent")["changed"]


def test_what_is_used_stays() -> None:
    four_steps("base", source="/root/data")
    base = f"{IMAGES}/base"
    four_steps("over", backing={"path": base, "format": "raw"})
    assert image("over")["full-backing-filename"] == base
    assert f"{IMAGES}/over uses it" in refused("base", state="absent")
    assert f"{IMAGES}/over uses it" in refused("base", capacity="1GiB")
    xml = (
        "<domain type='qemu'><name>g</name><memory unit='MiB'>64</memory><os><type>hvm</type></os><devices><disk "
        f"type='file'><driver name='qemu' type='qcow2'/><source file='{IMAGES}/over'/><target dev='vda'/></disk>"
        "</devices></domain>"
    )
    on("virsh -q define /dev/stdin", given=xml)
    assert "guest g uses it" in refused("over", state="absent")
    four_steps("over", capacity="128MiB")  # the guest is off
    on("virsh -q snapshot-create-as g s1")
    assert "guest g" in refused("over", capacity="256MiB")
    on("virsh -q snapshot-delete g s1")
    on("virsh -q start g")
    for options in ({"capacity": "256MiB"}, {"dest": "/root/x"}, {"state": "absent"}):
        assert "guest g" in refused("over", **options)
    assert "guest g (running) uses it" in refused("copy", clone_of="over")
    assert image("over")["virtual-size"] == 128 * 1024**2
    on("virsh -q destroy g; virsh -q undefine g")
    assert four_steps("over", state="absent") == ["delete volume over of pool default"]
    assert four_steps("base", state="absent", wipe=True) == ["wipe and delete volume base of pool default"]
    assert on(f"ls -A {IMAGES}") in ("", ".corral")


@pytest.mark.deep
def test_a_wiped_volume_leaves_no_content() -> None:
    four_steps("w", source="/root/data")
    on(f"ln -f {IMAGES}/w /root/witness")
    volume("w", state="absent", wipe=True)
    assert on("tr -d '\\0' < /root/witness | wc -c; rm /root/witness") == "0"


def test_a_name_is_a_file_name_and_nothing_else() -> None:
    def all_of_them(**options: t.Any) -> list[bool]:
        task = {
            "corral.virt.virt_volume": {"name": "{{ item }}", "pool": "default", **options},
            "loop": HOSTILE,
            "register": "told",
        }
        return [one["changed"] for one in LAB.tell(task, hosts="hyper1")["hyper1"]["results"]]

    assert all(all_of_them(capacity="1MiB")) and not any(all_of_them(capacity="1MiB"))
    listed = told("virt_volume_info", pool="default")["volumes"]
    assert sorted(one["name"] for one in listed) == sorted(HOSTILE)
    assert all(all_of_them(state="absent")) and on(f"ls {IMAGES}") == ""


def test_bad_names_and_pools_are_refused_at_once() -> None:
    for name in ("a/b", "..", "a\nb", "a" * 256, ".corral", "u.corral-unfinished", ""):
        assert "name: " in refused(name, capacity="1MiB")
    said = refused("../a", source="/a", clone_of="b", wipe=True, preallocate=True, secret="x")
    assert said.count("of volume ../a") >= 3 and "secret" in said
    assert "create it, or choose another" in LAB.module("virt_volume", ok=False, name="a", pool="nix", capacity=1)
    on("virsh -q pool-define-as off dir --target /root")
    assert "it is not active; start it" in LAB.module("virt_volume", ok=False, name="a", pool="off", capacity=1)
    on("virsh -q pool-undefine off")
    assert on(f"ls -A {IMAGES}") in ("", ".corral")


@pytest.mark.deep
def test_what_comes_and_goes_behind_libvirts_back_is_seen() -> None:
    on(f"qemu-img create -q -f qcow2 {IMAGES}/found 5M")
    assert not volume("found", capacity="5MiB")["changed"]
    on(f"rm {IMAGES}/found")
    assert volume("found", capacity="6MiB")["steps"] == ["create volume found of pool default (qcow2, 6MiB)"]
    on(f"rm {IMAGES}/found")
    assert not volume("found", state="absent")["changed"]


def test_a_full_pool_refuses_before_anything_is_made() -> None:
    on(
        "mkdir -p /root/small && mount -t tmpfs -o size=16m none /root/small && virsh -q pool-create-as small dir --target /root/small"
    )
    try:
        said = LAB.module("virt_volume", ok=False, name="u", pool="small", source="/root/data")
        assert "the pool has 16 MiB left" in said and on("ls -A /root/small") == ""
    finally:
        on("virsh -q pool-destroy small; umount /root/small")


def test_pools_and_volumes_are_described_by_arguments_that_change_nothing() -> None:
    four_steps("base", source="/root/data")
    four_steps("over", backing={"path": f"{IMAGES}/base", "format": "raw"})
    found = told("virt_volume_info", arguments=True)["volumes"]
    assert [(one["name"], one["capacity_bytes"]) for one in found] == [("base", 64 * 1024**2), ("over", 64 * 1024**2)]
    for one in found:
        assert not told("virt_volume", **one["arguments"])["changed"]
    (pool,) = told("virt_pool_info", name="default", arguments=True)["pools"]
    assert not told("virt_pool", **pool["arguments"])["changed"]
    block, size, free = map(int, on(f"stat -f -c '%S %b %f' {IMAGES}").split())
    assert pool["capacity_bytes"] == size * block and abs(pool["available_bytes"] - free * block) < 1024**3


@pytest.mark.deep
def test_a_directory_with_more_files_than_libvirt_lists() -> None:
    on(
        "mkdir -p /srv/many && cd /srv/many && seq -f v%.0f 17000 | xargs touch && virsh -q pool-create-as many dir --target /srv/many"
    )
    try:
        on("virsh -q vol-list many", ok=False)
        guest: dict[str, t.Any] = {"name": "g", "vcpus": 1, "memory": "64MiB", "interfaces": [], "state": "present"}
        told("virt_domain", **guest, disks=[{"name": "system", "size": "64MiB", "pool": "many"}])
        on("qemu-img create -q -f qcow2 -F qcow2 -b /srv/many/g-system.qcow2 /srv/many/over")
        (found,) = told("virt_volume_info", name="g-system.qcow2")["volumes"]
        assert found["capacity_bytes"] == 64 * 1024**2
        gone: dict[str, t.Any] = {"name": "g", "state": "absent", "remove_storage": True}
        assert told("virt_domain", check=True, **gone)["notes"] == [
            "kept disk /srv/many/g-system.qcow2 of g: /srv/many/over uses it"
        ]
        on("rm /srv/many/over")
        assert told("virt_domain", **gone)["steps"] == ["undefine g", "delete disk /srv/many/g-system.qcow2"]
        assert told("virt_volume", name="v9", pool="many", state="absent")["changed"]
        assert on("ls /srv/many | wc -l; ls /srv/many | grep -v ^v || true").split() == ["16999"]
    finally:
        on("virsh -q pool-destroy many; rm -r /srv/many")
