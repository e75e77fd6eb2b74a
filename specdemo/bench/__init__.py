"""The bench room: prompt files, repeated measured runs, reports (JSON and HTML with plots)."""

from .cli import add_arguments, bench_main, short_run
from .report import load_report, make_report
from .suite import Item, load_suite

__all__ = [
    "Item",
    "add_arguments",
    "bench_main",
    "load_report",
    "load_suite",
    "make_report",
    "short_run",
]
