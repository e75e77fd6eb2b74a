"""Text on its way to a terminal or a pipe: every console can show it, and nothing in it steers the
terminal.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# what a console of a smaller character set shows instead; "?" for everything else
_PLAIN = {"“": '"', "”": '"', "„": '"', "’": "'", "–": "-", "—": "-", "…": "...", "×": "x"}
# control characters as pictures (␛), but newline and tab; C1 and bidirectional controls as �
_PICTURES = (
    {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
    | {0x7F: 0x2421}
    | dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
)


def printable(text: str) -> str:
    """``text`` with its control characters made visible: what a model or a file says may not move
    the cursor, colour the screen or name the window.
    """
    return text.translate(_PICTURES)


def print_json(data: Any) -> None:
    """One line of JSON on stdout, whole on every console: escaped where it is not Unicode."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    print(json.dumps(data, ensure_ascii=not unicode))


def prepare_streams() -> None:
    """Make stdout and stderr print on any console, and be there where the caller closed them."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="specdemo.plain")


@contextmanager
def phases() -> Iterator[Callable[[str, float | None], None]]:
    """Inside, call what it yields with what a long command is doing, and how much of that is done
    (0 to 1, or None): a line on stderr that changes, or where nobody watches a line for each phase.
    """
    from rich.console import Console
    from rich.text import Text

    console, last = Console(stderr=True), ""

    def say(message: str, fraction: float | None = None) -> None:
        nonlocal last
        message = message[:1].upper() + message[1:]
        done = "" if fraction is None else f" {fraction:.0%}"
        if console.is_terminal:
            status.update(Text(f"{message}{done}"))
        elif message != last:
            print(f"specdemo: {message} …", file=sys.stderr, flush=True)
        last = message

    with console.status("") as status:
        yield say


@contextmanager
def note_if_slow(message: str, after: float = 2.0) -> Iterator[None]:
    """A line on stderr, should what is done inside take longer than ``after`` seconds."""

    def say() -> None:
        print(f"specdemo: {message} …", file=sys.stderr, flush=True)

    timer = threading.Timer(after, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def drop_output() -> None:
    """After a reader closed its pipe: what is still buffered goes nowhere, so that the interpreter
    ends without a complaint.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, "?") for character in lost), error.end


codecs.register_error("specdemo.plain", _plain)
