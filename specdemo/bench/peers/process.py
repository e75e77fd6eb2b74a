"""A peer in a process of its own: a crash there is one sentence here.

The child is a script that loads the weights, writes one line of JSON (its facts), and then answers
each line ``{"ids", "max_new_tokens"}`` with one line, ``{"ids", "tokens", "seconds",
"ttft_seconds", "rounds"}`` or ``{"failed"}``. It ends when its input is closed.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from ...errors import UserError
from .base import PeerAnswer

START_SECONDS, ANSWER_SECONDS = 120.0, 300.0


class Child:
    """A running child script.

    Args:
        script: its file, beside this one. settings: what it reads as its only argument.
        name: what the sentences call it.

    Attributes:
        ready: what it wrote when it was ready.

    Raises:
        UserError: it did not start.
    """

    def __init__(self, script: str, settings: dict[str, Any], name: str):
        self.name, self._lines = name, queue.Queue[str | None]()
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(script)), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
        )
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.ready = self._next(START_SECONDS, "did not start")
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.put(line)
        self._lines.put(None)

    def _next(self, seconds: float, what: str) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise UserError(f"{self.name} {what} within {seconds:.0f} seconds.") from None
        if line is None:
            raise UserError(f"{self.name} {what} ({self._last_error()}).")
        found: dict[str, Any] = json.loads(line)
        if "failed" in found:
            raise UserError(f"{self.name} {what} ({found['failed']}).")
        return found

    def _last_error(self) -> str:
        """The last line it wrote to its error stream, or its exit status."""
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return last[:200] or f"exit status {self._process.returncode}"

    def ask(self, ids: list[int], max_new_tokens: int) -> PeerAnswer:
        """Raises UserError: it did not answer."""
        line = json.dumps({"ids": ids, "max_new_tokens": max_new_tokens})
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):  # it has ended; the next line says so
            pass
        return PeerAnswer(**self._next(ANSWER_SECONDS, "did not answer"))

    def close(self) -> None:
        """End it, and wait until it is gone."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except OSError:
                pass
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
