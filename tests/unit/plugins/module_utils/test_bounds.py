"""Numbers and sizes beyond all bounds: a clear error in options, silence where others wrote them."""

from __future__ import annotations

import re
import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import bounded
from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_disk, fields_domain, xml_validate
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_arguments import imported
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import GUEST_OPTIONS, wanted
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Items, Row, Table
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import child, make, parse, text

MOST = 2**63 - 1
LIMIT = "must be at most 9223372036854775807 bytes (8EiB less one byte), not "


@pytest.mark.parametrize(
    ("value", "size_bytes"),
    [
        ("1EiB", 2**60),
        ("7.5E", 15 * 2**59),
        ("1EB", 10**18),
        (f"{2**53 - 1}KiB", 2**63 - 1024),
        ("8388607TiB", 2**63 - 2**40),
    ],
)
def test_the_largest_sizes(value: str, size_bytes: int) -> None:
    assert units.bytes_of(value, bare="M", what="memory of web1") == size_bytes


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("8EiB", LIMIT + "'8EiB'"),
        ("8388608TiB", LIMIT + "'8388608TiB'"),
        ("99999999999999999TiB", LIMIT + "'99999999999999999TiB'"),
        (10**30, LIMIT + str(10**30)),
        (MOST, LIMIT + str(MOST)),
        ("9" * 5000, LIMIT + f"'{'9' * 99}... (5002 characters)"),
        ("0." + "0" * 5000 + "1", LIMIT + f"'0.{'0' * 97}... (5005 characters)"),
        ("inf", "cannot read 'inf' as a size"),
        (float("inf"), "cannot read inf as a size"),
        (float("nan"), "cannot read nan as a size"),
        ("1e400", "cannot read '1e400' as a size"),
        (1e300, "cannot read 1e+300 as a size"),
        ("-1", "cannot read '-1' as a size"),
        (10**5000, "cannot read a number of thousands of digits as a size"),
    ],
    ids=lambda value: repr(value)[:20] if not isinstance(value, int) or value < MOST * 2 else "a long number",
)
def test_sizes_that_nothing_has(value: t.Any, reason: str) -> None:
    with pytest.raises(BadInput, match=re.escape("memory of web1: " + reason)):
        units.bytes_of(value, bare="M", what="memory of web1")


SIZES: dict[str, t.Callable[[t.Any], dict[str, t.Any]]] = {
    "memory.current of web1": lambda size: {"memory": size},
    "memory.maximum of web1": lambda size: {"memory": {"maximum": size}},
    "memory.hotplug_maximum of web1": lambda size: {"memory": {"hotplug_maximum": size, "slots": 1}},
    "memory.hugepage_size of web1": lambda size: {"memory": {"hugepage_size": size}},
    "memory.hard_limit of web1": lambda size: {"memory": {"hard_limit": size}},
    "numa.cells[0].memory of web1": lambda size: {"numa": {"cells": [{"id": 0, "memory": size}]}},
    "video.vram of web1": lambda size: {"video": {"vram": size}},
    "size of disk data of web1": lambda size: {"disks": [{"name": "data", "size": size}]},
}


def problems(said: dict[str, t.Any]) -> list[str]:
    """What is wrong with the options of a guest."""
    result = ArgumentSpecValidator(GUEST_OPTIONS).validate(bounded(GUEST_OPTIONS, {"name": "web1", **said}))
    if result.error_messages:
        return list(result.error_messages)
    with pytest.raises(BadInput, match="web1") as refused:
        wanted(result.validated_parameters)
    return refused.value.problems


@pytest.mark.parametrize("value", ["99999999999999999TiB", "9" * 5000, 10**30], ids=["TiB", "text", "number"])
@pytest.mark.parametrize("place", SIZES)
def test_a_size_out_of_range_is_told_with_option_value_and_limit(place: str, value: t.Any) -> None:
    assert problems(SIZES[place](value)) == [f"{place}: {LIMIT}{units.written(value)}"]


NUMBERS: dict[str, tuple[t.Callable[[t.Any], dict[str, t.Any]], str]] = {
    "vcpus.current of web1": (lambda number: {"vcpus": number}, "1 to 4096"),
    "vcpus.maximum of web1": (lambda number: {"vcpus": {"maximum": number}}, "1 to 4096"),
    "vcpus.iothreads of web1": (lambda number: {"vcpus": {"iothreads": number}}, "0 to 1024"),
    "disks[data].queues of web1": (lambda number: {"disks": [{"name": "data", "queues": number}]}, "1 to 1024"),
    "disks[data].iotune.total_bytes_sec of web1": (
        lambda number: {"disks": [{"name": "data", "iotune": {"total_bytes_sec": number}}]},
        f"0 to {10**15}",
    ),
    "graphics.port of web1": (lambda number: {"graphics": {"type": "vnc", "port": number}}, ""),
    "interfaces[lan].mtu of web1": (lambda number: {"interfaces": [{"name": "lan", "mtu": number}]}, "68 to 65535"),
}


@pytest.mark.parametrize("value", [10**30, 10**5000, -(10**30)], ids=["30", "5000", "negative"])
@pytest.mark.parametrize("place", NUMBERS)
def test_a_number_out_of_range_is_told_with_option_value_and_limit(place: str, value: int) -> None:
    output, limit = NUMBERS[place]
    [problem] = problems(output(value))
    assert problem.startswith(f"{place}: must be a ") and limit in problem
    assert problem.endswith(f", not {units.written(value)}")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("inf", "infinite"), (float("inf"), "infinite"), (float("nan"), "infinite"), ("-Infinity", "infinite"),
        ("9" * 5000, "a number of 5000 digits"), ("1e999999999", "a number of 1000000000 digits"),
    ],
    ids=lambda value: str(value)[:12],
)  # fmt: skip
@pytest.mark.parametrize("place", NUMBERS)
def test_a_number_without_bounds_is_refused_by_ansible(place: str, value: t.Any, told: str) -> None:
    [problem] = problems(NUMBERS[place][0](value))
    assert f"'{told}'" in problem and re.search("cannot be converted to an int|must be a whole number", problem)


BARE = """<domain type='kvm'><name>web1</name><memory unit='KiB'>1048576</memory><vcpu>2</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type></os><devices/></domain>"""


def numeric(table: Table, prefix: str = "") -> t.Iterator[tuple[str, list[Items], Row]]:
    """Every row of a number, with the lists that it is in."""
    for field, one in table.items():
        if isinstance(one, Items):
            for place, lists, row in numeric(one.table, f"{prefix}{field}[]."):
                yield place, [one, *lists], row
        elif one.kind.ends or one.unit or field.endswith("_kib"):
            yield prefix + field, [], one


ROWS = {place: (lists, one) for place, lists, one in numeric(fields_domain.DOMAIN)}
FOREIGN = [str(10**30), "9" * 5000, "-1", "some", "", "18446744073709551615"]


def foreign(place: str, value: str) -> str:
    """A guest that somebody gave such a value."""
    root = parse(BARE)
    lists, one = ROWS[place]
    element = root
    for entries in lists:
        *way, tag = entries.path.split("/")
        for step in way:
            element = child(element, step)
        element = make(element, tag)
    if lists and lists[0] is fields_disk.DISKS:
        make(element, "target", dev="vda", bus="virtio")
    if element.tag == "channel":
        make(element, "target", type="virtio", name="org.example.0")
    steps, attribute = one.steps
    for step in steps:
        element = child(element, step)
    if attribute:
        element.set(attribute, value)
    else:
        element.text = value
    return text(root)


@pytest.mark.parametrize("place", ROWS)
def test_what_others_wrote_is_left_out(place: str) -> None:
    for value in FOREIGN:
        xml = foreign(place, value)
        fields_domain.read_fields(xml)
        fields_domain.sizes(xml)
        options = {
            option: output for option, output in imported(xml, autostart=False).arguments.items() if option != "xml"
        }
        assert value not in str(options) or len(value) < 10
        for output in ({"disks": [{"name": "a", "source": "/a"}]}, {"cpu": {"mode": "host-model"}}, EVERYTHING):
            spec = wanted(
                ArgumentSpecValidator(GUEST_OPTIONS).validate({"name": "web1", **output}).validated_parameters
            )
            assert isinstance(spec, GuestSpec)
            xml_validate.problems(xml, spec, fields_domain.graft(xml, spec))


EVERYTHING: dict[str, t.Any] = {
    "numa": {"mode": "strict", "nodeset": "0"},
    "vcpus": {"pinning": [{"vcpu": 0, "cpuset": "0"}], "topology": {"cores": 2}, "iothreads": 2},
    "controllers": [
        {"type": "scsi", "index": 3, "model": "virtio-scsi"},
        {"type": "pci", "index": 9, "state": "absent"},
    ],
    "interfaces": [{"name": "lan", "bridge": "br0", "boot_order": 1}],
    "boot": {"order": ["hd"]},
    "memory": {"hotplug_maximum": "8GiB", "slots": 2},
}
