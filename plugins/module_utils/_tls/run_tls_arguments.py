# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of `virt_tls`, for the module on the host and the action on the controller."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import env_fallback

from ansible_collections.corral.virt.plugins.module_utils._tls.files_daemon import DAEMONS
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import CA_DIR, DAEMONS_PLACE, IDENTITIES

OPTIONS: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["present", "revoked"], "default": "present"},
    "name": {"type": "str"},
    "names": {"type": "list", "elements": "str"},
    "identities": {"type": "list", "elements": "str", "choices": list(IDENTITIES), "default": list(IDENTITIES)},
    "ca_dir": {"type": "path", "default": CA_DIR, "fallback": (env_fallback, ["CORRAL_VIRT_CA_DIR"])},
    "ca_passphrase": {"type": "str", "no_log": True, "fallback": (env_fallback, ["CORRAL_VIRT_CA_PASSPHRASE"])},
    "ca_constraints": {"type": "list", "elements": "str", "default": []},
    "new_authority": {"type": "bool", "default": False},
    "controller": {"type": "bool", "default": False},
    "hypervisors": {"type": "list", "elements": "str"},
    "days": {"type": "int", "default": 365},
    "renew_before": {"type": "int", "default": 30},
    "force": {"type": "bool", "default": False},
    "replace_authority": {"type": "bool", "default": False},
    "pki_dir": {"type": "path", "default": DAEMONS_PLACE},
    "qemu_group": {"type": "str"},
    "daemon": {"type": "str", "choices": list(DAEMONS)},
    "ca_certificate": {"type": "str"},
    "ca_key": {"type": "str", "no_log": True},
    "ca_crl": {"type": "str"},
    "qemu_ca_certificate": {"type": "str"},
    "qemu_ca_key": {"type": "str", "no_log": True},
    "qemu_ca_crl": {"type": "str"},
    "retired_ca_certificates": {"type": "str"},
    "revoked": {"type": "dict"},
    "certificates": {"type": "dict"},
}
