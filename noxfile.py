"""The checks of the Makefile as nox sessions, and those of antsibull-nox (antsibull-nox.toml). `nox -l` lists them.

A session of a target runs in .venv, as make does, with the same settings and versions.
"""

from __future__ import annotations

import antsibull_nox
import nox

TARGETS = ("lint", "units", "sanity", "docs", "site", "build", "reuse")

nox.needs_version = ">=2025.2.9"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ("extra-checks", *TARGETS)
antsibull_nox.load_antsibull_nox_toml()


def _session(target: str) -> None:
    def run(session: nox.Session) -> None:
        session.run("make", target, *session.posargs, external=True)

    run.__doc__ = f"Run make {target}; variables of make follow --."
    nox.session(name=target, python=False)(run)


for each in TARGETS:
    _session(each)

if __name__ == "__main__":
    nox.main()
