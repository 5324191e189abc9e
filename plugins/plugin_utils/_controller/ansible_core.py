# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Functions of ansible-core 2.19.

On an older version, exit with a message: Ansible would show a traceback, or go on without the plugin.
"""

from __future__ import annotations

import platform
import sys

from ansible.release import __version__

__all__ = ["is_trusted_as_template", "trust_as_template"]


try:
    from ansible.template import is_trusted_as_template, trust_as_template
except ImportError:
    sys.exit(
        "corral.virt requires ansible-core 2.19 or newer, with Python 3.11 or newer; this is ansible-core "
        f"{__version__} with Python {platform.python_version()}. To have it beside this one: python3 -m venv "
        "--system-site-packages ~/corral && . ~/corral/bin/activate && pip install 'ansible-core>=2.19'"
    )
