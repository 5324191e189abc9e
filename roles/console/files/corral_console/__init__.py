# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The web console: what runs where, live, with the consoles of guests.

Data flows one way: libvirt -> `watch` -> `store` -> `stream` -> the page. Nothing here writes to libvirt.
"""
