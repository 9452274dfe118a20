"""Regular files: read as a whole, and replaced by a new content at once.

A pipe can make whoever opens it wait for ever, and a device never ends, so neither is read. Nothing but a regular file
is ever replaced: to put a file in place of a device would break the machine, and in place of a link loose what it
points to.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from remat_explorer.errors import FileError
from remat_explorer.quantities import format_bytes

LARGEST = 2**30  # bytes of a file that is read
_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link that leads round in a circle",
}


def read_regular(path: str | Path) -> str:
    """The text of a regular file."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # even to open a pipe may take for ever
        with os.fdopen(handle, "rb") as stream:
            state = os.fstat(stream.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise _refusal("read", path, f"it is {_kind(state)}, not a regular file")
            if state.st_size > LARGEST:
                size, most = format_bytes(state.st_size), format_bytes(LARGEST)
                raise _refusal("read", path, f"it has {size}, more than {most}, the most that is read")
            return stream.read(LARGEST).decode("utf-8")
    except FileError:
        raise
    except OSError as error:
        raise _refusal("read", path, error.strerror or str(error), error.errno) from None


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A new, empty file that takes the place of ``path`` where the body ends well, and else is removed.

    Who reads ``path`` sees the old content or the new. Where it is a link, the file that it points to is replaced. A
    file that is there keeps its mode and its owner; a new one gets what the umask says.
    """
    target, state = _target(path)
    temporary = _beside(target)
    try:
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)  # less what the umask takes away
        try:
            if state is not None:
                _take_over(handle, state)
            os.close(handle)
            handle = -1
            yield temporary
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                if handle != -1:
                    os.close(handle)
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except FileError:
        raise
    except OSError as error:
        raise _refusal("write", path, error.strerror or str(error), error.errno) from None
    except ValueError as error:  # a path with a zero byte in it
        raise _refusal("write", path, str(error)) from None


def require_writable(path: str | Path) -> None:
    """Refuse a path that `replacing` will not write, before any time goes into what is to be written there.

    An empty file is written beside it and removed again: what a file system takes is known to itself alone.
    """
    target, state = _target(path)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise _refusal("write", path, f"nothing can be written into the folder {str(target.parent)!r}", errno.EACCES)
    if state is not None and not os.access(target, os.W_OK):
        raise _refusal("write", path, "it may not be written", errno.EACCES)
    beside = _beside(target)
    try:
        os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.unlink(beside)
    except OSError as error:
        raise _refusal("write", path, error.strerror or str(error), error.errno) from None


def is_same_file(path: str | Path, other: str | Path) -> bool:
    """Whether two paths lead to one file, past all links, or would if it were there."""
    try:
        return os.path.samefile(path, other)
    except (OSError, ValueError):
        return os.path.realpath(path) == os.path.realpath(other)


def _beside(target: Path) -> Path:
    """A name for a file that takes the place of ``target`` later."""
    return target.with_name(f".{target.name[:60]}.{secrets.token_hex(4)}")


def _target(path: str | Path) -> tuple[Path, os.stat_result | None]:
    """The file that is written, past all links, and what is there by now."""
    if not os.fspath(path):
        raise _refusal("write", path, "the name is empty; name a file", errno.ENOENT)
    try:
        target = Path(os.path.realpath(path))
        os.stat(target.parent)
        state = _state(target)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refusal("write", path, reason, getattr(error, "errno", None)) from None
    if not target.parent.is_dir():
        raise _refusal("write", path, f"{str(target.parent)!r} is no folder", errno.ENOTDIR)
    if state is not None and not stat.S_ISREG(state.st_mode):
        raise _refusal("write", path, f"it is {_kind(state)}, not a regular file; name another one", errno.EINVAL)
    if os.fspath(path).endswith(_SEPARATORS):
        raise _refusal("write", path, "it ends as the name of a folder does; name a file", errno.EISDIR)
    return target, state


def _state(target: Path) -> os.stat_result | None:
    """What is there, None for nothing."""
    try:
        return os.lstat(target)
    except FileNotFoundError:
        return None


def _take_over(handle: int, state: os.stat_result) -> None:
    """Give the new file owner, group and mode of the old one, in this order: a new owner takes bits of the mode."""
    own = os.fstat(handle)
    if hasattr(os, "fchown") and (own.st_uid, own.st_gid) != (state.st_uid, state.st_gid):
        os.fchown(handle, state.st_uid, state.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(handle, stat.S_IMODE(state.st_mode))


def _kind(state: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(state.st_mode), "something else")


def _refusal(action: str, path: str | Path, reason: str, number: int | None = None) -> FileError:
    path = os.fspath(path)
    return FileError(f"cannot {action} {path!r}: {reason}", reason, number, path)
