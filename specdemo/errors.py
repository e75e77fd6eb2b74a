"""Errors that a person is meant to read, and commands that end with one."""

from __future__ import annotations

import errno
import os
import reprlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .console import drop_output, prepare_streams, printable

LONGEST = 200  # of a quoted line
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class UserError(Exception):
    """Something cannot be done. The message is one sentence that says what to do instead.

    Every entry point (page, command line, API) shows ``str(error)`` and nothing else; no
    traceback. What it quotes may be no text: half a surrogate pair is shown as “?”, so that the
    sentence can be sent.
    """

    def __init__(self, message: str):
        super().__init__(message.encode("utf-8", "replace").decode("utf-8"))


def first_line(error: BaseException) -> str:
    """The first line of a library's error message, to be quoted in a sentence of our own, with the
    next where it ends in a colon; of a long one its whole words.
    """
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = (said or [type(error).__name__])[0]
    if isinstance(error, KeyError):  # it says no more than the name
        line = f"there is no {line}"
    if line.endswith(":") and len(said) > 1:
        line = f"{line} {said[1]}"
    return textwrap.shorten(line, LONGEST, placeholder=" …").rstrip(".")


def shown(value: Any, longest: int = 80) -> str:
    """``repr(value)`` for a sentence; cut where it is long, as a value from outside may be. Of
    lists in lists only the outer ones are read: YAML's aliases make a small file a huge value.
    """
    short = reprlib.Repr()
    short.maxlevel, short.maxlist, short.maxtuple, short.maxdict, short.maxset = 3, 20, 20, 20, 20
    short.maxstring, short.maxother, short.maxlong = 10 * longest, 10 * longest, 10 * longest
    try:
        text = short.repr(value)
    except Exception:  # an int of thousands of digits, or a class of somebody else
        return f"this {type(value).__name__}"
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def run_command(work: Callable[[], int | None], stopped: str = "stopped.") -> int:
    """Run a command's work; 0 = done (or what it returns), 1 = refused (one sentence on stderr),
    130 = interrupted, said as ``stopped``, 141 = the reader of its output has gone.
    """
    prepare_streams()
    try:
        try:
            return work() or 0
        finally:
            sys.stdout.flush()
    except UserError as error:
        print(f"specdemo: {printable(' '.join(str(error).splitlines()))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"specdemo: {stopped}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        drop_output()
        return 141
    except OSError as error:  # of a file or folder that a person named, or of the cache
        if error.filename is not None:
            said = f"{printable(shown(os.fspath(error.filename)))} cannot be used"
        elif error.errno in FULL:  # a write names no file
            said = "The output, or a file, cannot be written"
            drop_output()
        else:
            raise
        with suppress(OSError):  # the same disk may hold the errors
            print(f"specdemo: {said} ({error.strerror}).", file=sys.stderr)
        return 1


@contextmanager
def as_user_errors(out: Path, less: str) -> Iterator[None]:
    """Inside, a full disk, a folder that cannot be written and memory that runs out become a
    UserError.

    Args:
        out: the folder the command writes to. less: the options to lower where memory is short.
    """
    import torch

    try:
        yield
    except BrokenPipeError:
        raise  # of the output, not of the folder
    except OSError as error:
        raise UserError(
            f"{error.filename or out} could not be used ({error.strerror or error}); mend that or"
            " choose another --out. What was saved before is kept."
        ) from None
    except RuntimeError as error:  # torch has a class of its own for a GPU only
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise UserError(f"Out of memory; lower {less}. What was saved before is kept.") from None
