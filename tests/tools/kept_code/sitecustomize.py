"""Keep what Python compiles of the modules that Ansible sends: they are archives of sources, and compiling is half of
what each costs.

Only for tests, which send the same ones a thousand times. Python finds it in PYTHONPATH, or on a host of the lab in its
own place.
"""

from __future__ import annotations

import os
import sys
import zipimport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

PLACE = os.environ.get("CORRAL_KEPT_CODE", "/run/corral-lab-code")
_compile = zipimport._compile_source  # type: ignore[attr-defined]


def _of_archive(path: str, source: bytes) -> CodeType:
    # The archive has another name each time, which makes a difference in tracebacks only.
    return kept(path.partition(".zip")[2], source) or keep(path.partition(".zip")[2], source, _compile(path, source))


def kept(name: str, source: bytes) -> CodeType | None:
    """What was made of a source before, if that is known."""
    import marshal  # most programs that Python starts need not wait for it

    try:
        with open(_path(name, source), "rb") as file:
            code: CodeType = marshal.load(file)
            return code
    except (OSError, EOFError, ValueError, TypeError):
        return None


def keep(name: str, source: bytes, code: CodeType) -> CodeType:
    """Remember it; without the place for it nothing is kept."""
    import marshal

    path = _path(name, source)
    try:
        os.makedirs(PLACE, mode=0o700, exist_ok=True)
        with open(f"{path}.{os.getpid()}", "wb") as file:
            marshal.dump(code, file)
        os.rename(f"{path}.{os.getpid()}", path)
    except OSError:
        pass
    return code


def _path(name: str, source: bytes) -> str:
    import hashlib

    return f"{PLACE}/{hashlib.sha256(f'{sys.version} {name} '.encode() + source).hexdigest()}"


zipimport._compile_source = _of_archive  # type: ignore[attr-defined]
