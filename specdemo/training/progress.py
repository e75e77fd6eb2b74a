"""A progress bar on the terminal, on standard error; in a file a line a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

Update = Callable[[float, str], None]
LINE_SECONDS = 60.0


@contextmanager
def progress_bar(description: str, total: float, show: bool = True) -> Iterator[Update]:
    """Inside, a bar; call what it yields with how much of ``total`` is done and a note."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    console = Console(stderr=True)
    if show and not console.is_terminal:
        yield _lines(console, description, total)
        return
    with Progress(*columns, console=console, disable=not show) as progress:
        task = progress.add_task(description, total=total, note="")
        yield lambda done, note: progress.update(task, completed=done, note=note)


def _lines(console: Console, description: str, total: float) -> Update:
    """What stands in for the bar where nobody watches: at most a line a minute."""
    said = float("-inf")

    def update(done: float, note: str) -> None:
        nonlocal said
        if time.monotonic() - said >= LINE_SECONDS:
            said = time.monotonic()
            clock = time.strftime("%H:%M:%S")
            line = f"{clock} {description} {100 * done / total:.1f} %, {note}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    return update
