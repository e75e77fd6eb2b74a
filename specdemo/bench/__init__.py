"""Measuring: repeated, interleaved trials of methods on a prompt file; reports (JSON, and HTML with
charts).
"""

from .measure import short_run
from .report import load_report, make_report

__all__ = ["load_report", "make_report", "short_run"]
