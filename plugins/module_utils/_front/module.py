# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What every module of the collection shares: the connection option and the translation of errors."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Failed, VirtError

__all__ = ["URI_OPTION", "failures"]

# Kept in step with plugins/doc_fragments/connection.py.
URI_OPTION: dict[str, t.Any] = {"uri": {"type": "str", "default": "qemu:///system"}}


@contextlib.contextmanager
def failures(module: t.Any) -> t.Iterator[None]:
    """Libraries raise, fronts translate: our exceptions become the module's failure."""
    try:
        yield
    except BadInput as error:
        module.fail_json(msg=str(error), problems=error.problems)
    except Failed as error:
        module.fail_json(msg=str(error), done=error.done, changed=bool(error.done))
    except VirtError as error:
        module.fail_json(msg=str(error))
