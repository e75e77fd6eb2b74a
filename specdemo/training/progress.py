"""A progress bar on the terminal, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

Update = Callable[[float, str], None]


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
    with Progress(*columns, console=Console(stderr=True), disable=not show) as progress:
        task = progress.add_task(description, total=total, note="")
        yield lambda done, note: progress.update(task, completed=done, note=note)
