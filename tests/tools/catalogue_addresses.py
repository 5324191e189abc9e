"""Ask every address of the catalogue whether it still answers, and every list whether it has its image.

It needs the internet: a scheduled job runs it, and no test. `catalogue_addresses.py [NAME ...]` asks for these images
only. The exit code is 1 if an address is dead or a list does not have its image.
"""

from __future__ import annotations

import sys
import typing as t
import urllib.request

from ansible_collections.corral.virt.plugins.module_utils._image.model_checksum_list import checksum_in, decoded
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Source, Sums, parse_checksum
from ansible_collections.corral.virt.plugins.plugin_utils._images.catalogue import Catalogue

__all__ = ["Ask", "main", "problems"]

TIMEOUT_S = 60
LIST_BYTES = 4 * 1024 * 1024  # more than any list has

Ask = t.Callable[[str, str], bytes]  # a method of HTTP, an address: what answers


def ask(method: str, address: str) -> bytes:
    """Ask a server; raises OSError where it does not answer as hoped."""
    request = urllib.request.Request(address, method=method, headers={"User-Agent": "corral.virt catalogue"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return t.cast(bytes, answer.read(LIST_BYTES))


def problems(catalogue: Catalogue, names: t.Iterable[str], ask: Ask) -> t.Iterator[str]:
    """What is wrong with each image, for each of its architectures; ValueError for a name that there is not."""
    for name in names:
        for arch in catalogue.entries.get(name, {}).get("arch") or ["x86_64"]:
            found = catalogue.resolve(name, arch)
            yield from (f"{name} {arch}: {reason}" for reason in _dead(found, ask))


def _dead(found: t.Mapping[str, t.Any], ask: Ask) -> t.Iterator[str]:
    for address in filter(None, (found["url"], found["signature"])):
        try:
            ask("HEAD", address)
        except OSError as error:
            yield f"{address}: {error}"
    sums = parse_checksum(found["checksum"])
    if not isinstance(sums, Sums):
        return
    try:
        text = decoded(ask("GET", sums.url))
    except OSError as error:
        yield f"{sums.url}: {error}"
        return
    if checksum_in(text, Source("url", found["url"]), sums) is None:
        yield f"{sums.url} does not have {found['url'].rpartition('/')[2]}"


def main(words: t.Sequence[str]) -> int:
    """Print what is wrong; the exit code."""
    catalogue = Catalogue()
    names = list(words) or list(catalogue.entries)
    try:
        found = list(problems(catalogue, names, ask))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join([*found, f"{len(found)} problems with {len(names)} images"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
