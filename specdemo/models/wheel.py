"""One wheel through pip, so that whatever package index is configured on this computer serves it
too.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..errors import UserError

RAW = re.compile(r"Progress (\d+) of (\d+)")


def download_wheel(
    requirement: str, folder: Path, progress: Callable[[str, float | None], None]
) -> Path:
    """Download the wheel of ``requirement`` (``name==version``) into ``folder`` without its
    dependencies.

    pip writes into a folder of its own that is thrown away if anything goes wrong, Ctrl-C included.
    """
    if importlib.util.find_spec("pip") is None:
        raise UserError(
            f"pip, which fetches {requirement}, is not installed in this Python; install it with"
            " “python -m ensurepip”"
        )
    with tempfile.TemporaryDirectory(dir=folder, prefix="pip-") as scratch:
        output = _run(requirement, scratch, "raw", progress)
        # pip before 24.1 has no machine-readable progress
        if output is not None and "--progress-bar" in output:
            output = _run(requirement, scratch, "off", progress)
        wheels = sorted(Path(scratch).glob("*.whl"))
        if output is not None or not wheels:
            raise UserError(_why(requirement, output or ""))
        return wheels[0].replace(folder / wheels[0].name)


def _run(
    requirement: str, scratch: str, bar: str, progress: Callable[[str, float | None], None]
) -> str | None:
    """None if pip succeeded, else its output."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--no-input",
        "--disable-pip-version-check",
        "--retries",
        "2",
        "--timeout",
        "20",
        "--progress-bar",
        bar,
        "--dest",
        scratch,
        requirement,
    ]
    message, lines = f"downloading {requirement.partition('==')[0]}", []
    progress(message, None)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as pip:
        try:
            for line in pip.stdout or ():
                if match := RAW.search(line):
                    done, total = int(match[1]), int(match[2])
                    progress(message, min(done / total, 1.0) if total else None)
                else:
                    lines.append(line)
        except BaseException:
            pip.kill()
            raise
    return None if pip.returncode == 0 else "".join(lines)


def _why(requirement: str, output: str) -> str:
    low = output.lower()
    if "no space left" in low:
        return f"the disk is full; free some space to fetch {requirement}"
    if any(
        w in low
        for w in ("connection", "timed out", "timeout", "resolve", "network", "proxy", "ssl")
    ):
        return f"the package index cannot be reached for {requirement}"
    if "no matching distribution" in low or "could not find a version" in low:
        return f"the package index does not offer {requirement}"
    last = next(
        (line.strip() for line in reversed(output.splitlines()) if line.strip()), "no reason given"
    )
    return f"pip could not fetch {requirement} ({last})"
