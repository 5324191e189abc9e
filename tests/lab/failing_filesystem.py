"""A filesystem in user space that passes all to a directory: failing_filesystem.py MOUNTPOINT DIRECTORY FLAGS.

Reads are slow while FLAGS/slow exists, and fail while FLAGS/gone exists, as on a share whose server does not answer.
"""

from __future__ import annotations

import errno
import os
import sys
import time
import typing as t
from pathlib import Path

import fuse  # type: ignore[import-not-found,unused-ignore]

fuse.fuse_python_api = (0, 2)
DIRECTORY, FLAGS = sys.argv[2], Path(sys.argv[3])
SLOW_S = 0.3


class Passing(fuse.Fuse):  # type: ignore[misc,unused-ignore]
    """Each operation on a path is done on the path below the directory."""

    def __getattr__(self, name: str) -> t.Any:
        does: dict[str, t.Callable[..., t.Any]] = {
            "getattr": os.lstat,
            "statfs": os.statvfs,
            "readlink": os.readlink,
            "unlink": os.unlink,
        }
        does |= {"mkdir": os.mkdir, "rmdir": os.rmdir, "chmod": os.chmod, "chown": os.chown, "truncate": os.truncate}
        if name not in does:
            raise AttributeError(name)
        return lambda path, *rest: does[name](DIRECTORY + path, *rest)

    def rename(self, path: str, to: str) -> None:
        Path(DIRECTORY + path).rename(DIRECTORY + to)

    def readdir(self, path: str, _offset: int) -> t.Iterator[t.Any]:
        return (fuse.Direntry(name) for name in (".", "..", *(one.name for one in Path(DIRECTORY + path).iterdir())))

    def open(self, path: str, _flags: int) -> int:
        return 0 if Path(DIRECTORY + path).exists() else -errno.ENOENT

    def mknod(self, path: str, mode: int, _device: int) -> None:
        os.mknod(DIRECTORY + path, mode)

    def read(self, path: str, size: int, offset: int) -> bytes | int:
        if (FLAGS / "slow").exists():
            time.sleep(SLOW_S)
        if (FLAGS / "gone").exists():
            return -errno.EIO
        with Path(DIRECTORY + path).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def write(self, path: str, content: bytes, offset: int) -> int:
        with Path(DIRECTORY + path).open("r+b") as file:
            file.seek(offset)
            return file.write(content)

    def fsync(self, _path: str, _data_only: int) -> int:
        return 0


server = Passing(dash_s_do="setsingle")
server.parse([sys.argv[1], "-s", "-o", "allow_other,default_permissions"])
server.main()
