"""How `make site` makes the pages: antsibull-docs writes the sources, Sphinx the pages."""

from __future__ import annotations

import re
import typing as t

project = title = html_title = "corral.virt"
copyright = "corral.virt contributors"  # noqa: A001 - Sphinx reads this name
extensions = ["sphinx_antsibull_ext"]
html_theme = "furo"
html_theme_options = {"source_repository": "https://github.com/corral-virt/corral.virt/"}
antsibull_ext_color_scheme = "default-autodark"
html_copy_source = False
html_show_sphinx = False
highlight_language = "YAML+Jinja"
default_role = "any"
nitpicky = True
# Ansible's own documentation is not part of an offline build.
nitpick_ignore_regex = [("std:ref", r"(?!ansible_collections\.corral\.virt\.).*"), ("envvar", "ANSIBLE_.*")]

# make site-links. Addresses of examples have no servers; GitHub makes the places in its pages with JavaScript.
linkcheck_ignore = [
    r"http://(debian|ubuntu)\.org/(debian|ubuntu)/[\d.]+",  # names of libosinfo
    r"https?://([\w-]+\.)*example\.(org|com|net)\b.*",
    r"https?://(localhost|127\.0\.0\.1|\[?::1)\b.*",
]
linkcheck_anchors_ignore_for_url = [r"https://github\.com/.*"]
linkcheck_timeout = 20
linkcheck_workers = 10

# Publishers of collections' guides copy no pictures: guides name them by address, and this site has its own copies.
PICTURES = "https://raw.githubusercontent.com/corral-virt/corral.virt/main/docs/docsite/pictures/"
CONTENTS = re.compile(r"^\.\. contents::.*\n(?: +:.*\n)*", re.MULTILINE)


def adapt(_app: object, _name: str, source: list[str]) -> None:
    """Replace the addresses of pictures by their files; the theme shows each page's contents itself."""
    source[0] = CONTENTS.sub("", source[0].replace(PICTURES, "/pictures/"))


def setup(app: t.Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", adapt)
