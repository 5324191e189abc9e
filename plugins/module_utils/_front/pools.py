# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Storage pools as libvirt names them, with what is seen of their directories on this machine."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._files.missing import obstacle
from ansible_collections.corral.virt.plugins.module_utils._libvirt import pool
from ansible_collections.corral.virt.plugins.module_utils._model.pool import RawPoolHost
from ansible_collections.corral.virt.plugins.module_utils._model.uri import has_files_here

__all__ = ["API"]


def _host(connection: t.Any, name: str) -> RawPoolHost:
    raw: RawPoolHost = pool.API.host(connection, name)
    return dataclasses.replace(raw, obstacle=obstacle) if has_files_here(connection.getURI()) else raw


API = dataclasses.replace(pool.API, host=_host)
