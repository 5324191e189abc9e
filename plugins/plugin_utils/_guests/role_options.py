# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that the role guests adds to a guest: a seed, tags, and waiting for its address. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.module_utils.common.validation import check_type_list
from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.corral.virt.plugins.module_utils._domain import model_domain
from ansible_collections.corral.virt.plugins.plugin_utils._guests import host_requirements
from ansible_collections.corral.virt.plugins.plugin_utils._images import image_names
from ansible_collections.corral.virt.plugins.plugin_utils._images.catalogue import Catalogue

Options = t.Mapping[str, t.Any]

# In the order of the tags.
_TAGGED = {
    "apart": model_domain.APART,
    "together": model_domain.TOGETHER,
    "host_groups": model_domain.HOST_GROUPS,
    "requires": model_domain.REQUIRES,
}


@dataclasses.dataclass(frozen=True)
class RoleSettings:
    """The role's settings for all guests of a hypervisor."""

    user_data: Options | None  # of the seeds; None where it seeds no guest
    wait_for_ip: str = "unknown"
    user: str = ""  # that the user data creates
    arch: str = ""  # of the hypervisor
    catalogue: Catalogue = dataclasses.field(default_factory=Catalogue)


def seeded(guest: Options, known: Options | None, site: RoleSettings) -> dict[str, t.Any]:
    """The options of a guest as they are sent to its hypervisor.

    `known` is the hypervisor's report of the guest, None if it does not have it.
    """
    options, takes_role_data = dict(guest), site.user_data is not None and _takes_user_data(guest, known)
    if known is None and options.get("state") != "absent":
        user = site.user if takes_role_data else ""
        options = image_names.described(options, site.catalogue, user=user, arch=site.arch)
    options = image_names.with_files(options, site.catalogue)
    if takes_role_data:
        options["cloud_init"] = {"user_data": site.user_data, **(options.get("cloud_init") or {})}
    options.update(_tags(options, known))
    if _is_awaited(options, starts_seeded=_starts_seeded(known)):
        options["wait_for_ip"] = site.wait_for_ip
    return {key: value for key, value in options.items() if key not in host_requirements.OWN}


def _takes_user_data(options: Options, known: Options | None) -> bool:
    """True if the role's user data applies: a new guest has no seed of its own, or its seed has no user data."""
    if "cloud_init" in options:
        seed = options["cloud_init"]
        return isinstance(seed, dict) and "user_data" not in seed
    is_complete = known is not None and not known["unfinished"]
    disks = options.get("disks") or ()
    made_from = [options.get("image"), options.get("clone_of"), *(disk.get("image") for disk in disks)]
    return not is_complete and any(made_from)


def _tags(options: Options, known: Options | None) -> dict[str, t.Any]:
    """The guest's tags, with those that record its groups. A guest without `tags` keeps its tags of other kinds."""
    given = {prefix: words for option, prefix in _TAGGED.items() if (words := _words(options.get(option)))}
    if not given:
        return {}
    tags = options.get("tags")
    if tags is None:
        kept = [tag for tag in (known or {}).get("tags") or () if not str(tag).startswith(tuple(given))]
    else:
        kept = check_type_list(tags)
    return {"tags": list(dict.fromkeys([*kept, *(prefix + word for prefix in given for word in given[prefix])]))}


def _words(value: t.Any) -> list[str]:
    """A list from one word, a list, or a dictionary of programs and versions."""
    if value in (None, ""):
        return []
    if isinstance(value, dict):
        return [f"{program}-{version}" for program, version in value.items()]
    return [str(word) for word in (value if isinstance(value, list) else [value])]


def _starts_seeded(known: Options | None) -> bool:
    """True if a guest that is there has a seed, and is off: its address is known only after it has started."""
    return known is not None and bool(known.get("seeded")) and known["state"] in ("shutdown", "crashed")


def _is_awaited(options: Options, *, starts_seeded: bool) -> bool:
    """True if the role waits for the guest's address: it runs with a seed and an interface, and sets no wait."""
    if "wait_for_ip" in options or not boolean(options.get("wait", True), strict=False):
        return False
    interfaces = options.get("interfaces", options.get("networks", True))
    return bool(options.get("state") == "running" and (options.get("cloud_init") or starts_seeded) and interfaces)
