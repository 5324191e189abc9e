"""What a host offers guests of firmware and TPMs, as libvirt tells it."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.module_utils._domain import xml_host


def enum(name: str, values: str) -> str:
    """As libvirt lists values; nothing where it is too old to tell."""
    found = "".join(f"<value>{value}</value>" for value in values.split())
    return "" if values == "untold" else f"<enum name='{name}'>{found}</enum>"


@pytest.mark.parametrize(
    ("arch", "firmware", "secure", "tpm", "platform"),
    [
        ("x86_64", "efi", "yes no", "passthrough emulator", "efi secure_boot tpm"),
        ("x86_64", "efi", "no", "passthrough", "efi"),
        # Without UEFI firmware, none has secure boot.
        ("x86_64", "bios", "no", "emulator", "tpm"),
        ("x86_64", "", "no", "", ""),
        ("x86_64", "", "untold", "", ""),
        # Only firmware of x86 needs what libvirt knows it by.
        ("aarch64", "efi", "no", "emulator", "efi secure_boot tpm"),
        ("x86_64", "untold", "untold", "untold", "efi secure_boot tpm"),
    ],
)
def test_what_libvirt_does_not_tell_is_not_denied(
    arch: str, firmware: str, secure: str, tpm: str, platform: str
) -> None:
    xml = (
        f"<domainCapabilities><arch>{arch}</arch><os>{enum('firmware', firmware)}<loader>{enum('secure', secure)}"
        f"</loader></os><devices><tpm supported='yes'>{enum('backendModel', tpm)}</tpm></devices></domainCapabilities>"
    )
    assert xml_host.domain_capabilities(xml)["platform"] == platform.split()
