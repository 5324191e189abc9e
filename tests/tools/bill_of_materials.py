"""The bill of materials of a release (CycloneDX, JSON): what the archive carries of others, and what the collection needs when it runs.

Usage: bill_of_materials.py ARCHIVE. It is written beside the archive, from what this checkout says.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import typing as t
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

__all__ = ["bill", "write"]

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(.*)$")


def _component(kind: str, name: str, version: str | None = None, **more: t.Any) -> Component:
    scope, _, package = name.rpartition("/")
    url = PackageURL(kind, scope or None, package, version)
    return Component(
        name=package,
        group=scope or None,
        version=version,
        type=ComponentType.LIBRARY,
        purl=url,
        bom_ref=str(url),
        **more,
    )


def _carried() -> Iterator[Component]:
    """Files of others in the archive: each has its licence beside it."""
    for note in sorted((ROOT / "plugins").rglob("*.license")):
        # Not the whole tag: with it, reuse takes this line for the licence of this file.
        licence = re.findall(r"-License-Identifier: (.*)", note.read_text())[0]
        file = note.with_suffix("")
        yield Component(
            name=str(file.relative_to(ROOT)),
            type=ComponentType.FILE,
            bom_ref=file.name,
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(file.read_bytes()).hexdigest())],
            licenses=[DisjunctiveLicense(id=licence)],
        )


def _required() -> Iterator[Component]:
    """On the controller; which versions are good is a property, as none is shipped."""
    core = yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["requires_ansible"]
    lines = [f"ansible-core{core}", *(ROOT / "requirements.txt").read_text().splitlines()]
    for name, versions in (found.groups() for line in lines if (found := REQUIREMENT.match(line))):
        yield _component("pypi", name, properties=[Property(name="corral:versions", value=versions)])


def _console() -> Iterator[Component]:
    """What the role console downloads to its machine: pinned, with hashes; optional, as no other role needs it."""
    files = ROOT / "roles/console/files"
    for each in json.loads((files / "libraries.json").read_text()):
        digest = base64.b64decode(each["integrity"].removeprefix("sha512-")).hex()
        hashes = [HashType(alg=HashAlgorithm.SHA_512, content=digest)]
        licences = [DisjunctiveLicense(name=each["licence"])]
        scope = ComponentScope.OPTIONAL
        yield _component("npm", each["package"], each["version"], hashes=hashes, licenses=licences, scope=scope)
    for each in json.loads((files / "wheels.json").read_text()):
        # A hash without the name of its file says nothing where there are several.
        named = [Property(name=f"corral:sha256:{name}", value=digest) for name, digest in each["files"].items()]
        yield _component("pypi", each["package"], each["version"], properties=named, scope=ComponentScope.OPTIONAL)


def bill(archive: Path) -> str:
    """The document, checked against CycloneDX's schema."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    version = archive.name.removeprefix("corral-virt-").removesuffix(".tar.gz")
    main = Component(
        name="corral.virt",
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=f"corral.virt@{version}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        licenses=[DisjunctiveLicense(id="GPL-3.0-or-later")],
    )
    result = Bom()
    result.metadata.component = main
    parts: Iterable[Component] = [*_carried(), *_required(), *_console()]
    result.components.update(parts)
    result.register_dependency(main, parts)
    text = JsonV1Dot6(result).output_as_string(indent=2)
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong:
        raise ValueError(f"the bill of materials does not follow its schema: {wrong}")
    return text


def write(archive: Path) -> None:
    """Beside the archive."""
    archive.with_name(archive.name.replace(".tar.gz", ".cdx.json")).write_text(bill(archive) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(Path(sys.argv[1]))
