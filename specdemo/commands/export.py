"""``specdemo export``: a saved race as one HTML page that works offline."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import UserError
from ..files import write_output
from ..traces import load_trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``export``."""
    parser.add_argument("trace", type=Path, help="a trace saved by “race --trace” or by the page")
    parser.add_argument("html", type=Path, help="the page to write")


def export_main(args: argparse.Namespace) -> int:
    """Write the page; never over the trace."""
    from ..ui.export import export_html

    page = export_html([event.to_dict() for event in load_trace(args.trace)])
    if args.html.exists() and args.html.samefile(args.trace):
        raise UserError(f"{args.html} is the trace itself; name another file for the page.")
    write_output(args.html, page, "The page")
    print(args.html)
    return 0
