"""Files that are whole or not there, folders for one process at a time."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .errors import UserError

LOCK = ".lock"
MAX_JSON_BYTES = 200_000_000


def atomic_write(path: Path, data: str | bytes) -> None:
    """Write ``data`` (text as UTF-8) beside its final name first, so that a full disk or a kill
    leaves neither half a file nor a lost one. A link stays one, to a new file; a pipe or a device
    is written to as it is.

    Raises:
        OSError: as writing does; what was there before is still there.
    """
    raw = data.encode("utf-8") if isinstance(data, str) else data
    if _is_stream(path):
        with path.open("ab") as stream:
            stream.write(raw)
        return
    path = path.resolve()
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # another process may write it, too
    try:
        part.write_bytes(raw)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def read_at_most(path: Path, most: int) -> bytes | None:
    """A file's bytes, or None where there are more than ``most``: of a pipe or a device, which say
    no size, no more are read.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        raw = file.read(most + 1)
    return raw if len(raw) <= most else None


def read_json(path: Path) -> Any:
    """What a JSON file (UTF-8) says.

    Raises:
        OSError: it cannot be read. ValueError: it is no JSON, or larger or nested deeper than is
            read.
    """
    raw = read_at_most(path, MAX_JSON_BYTES)
    if raw is None:
        raise ValueError(f"it is larger than {MAX_JSON_BYTES / 1e6:.0f} MB")
    try:
        return json.loads(raw.decode("utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def write_output(path: Path, data: str | bytes, what: str) -> None:
    """:func:`atomic_write` of a file that a person asked for; ``what`` begins the sentence.

    Raises:
        UserError: it cannot be written.
    """
    try:
        atomic_write(path, data)
    except OSError as error:
        raise UserError(
            f"{what} could not be written to {path} ({error.strerror}); choose another place or"
            " free some space."
        ) from None


def check_output(path: Path, what: str) -> None:
    """Try what :func:`write_output` will do at the end of long work, and leave nothing behind.

    Raises:
        UserError: it cannot be written.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if _is_stream(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        part = path.resolve().with_name(f"{path.name}.{os.getpid()}.part")
        part.write_bytes(b"")
        part.unlink()
    except OSError as error:
        raise UserError(
            f"{what} cannot be written to {path} ({error.strerror}); name a file in a folder that"
            " is there and can be written."
        ) from None


def _is_stream(path: Path) -> bool:
    """Whether ``path`` is a pipe, a terminal or another device, such as ``/dev/stdout``."""
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def exclusive_lock(path: Path, on_busy: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file ``path`` (made with its folder) against other processes and threads; the
    system frees it when its process ends, however it ends.

    Args:
        on_busy: called if another holds it; raises, or returns to wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_busy()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def locked_output_dir(folder: Path) -> Iterator[None]:
    """``folder`` (made if need be) for the one command that fills it; if it stays empty, it is
    taken away again.

    Raises:
        UserError: another process fills it, or it cannot be made or written.
    """

    def refuse() -> None:
        raise UserError(
            f"Another command is writing to {folder}; wait until it has ended, or choose another"
            " --out."
        )

    new = not folder.exists()
    with ExitStack() as held:
        try:
            held.enter_context(exclusive_lock(folder / LOCK, refuse))
        except OSError as error:
            raise UserError(
                f"The folder {folder} cannot be used ({error.strerror or error}); choose another"
                " --out."
            ) from None
        try:
            yield
        finally:
            with suppress(OSError):
                if new and [file.name for file in folder.iterdir()] == [LOCK]:
                    (folder / LOCK).unlink()
                    folder.rmdir()
