"""``specdemo export``: a saved race as one HTML page that works offline, or as a picture."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import UserError
from ..files import write_output
from ..traces import load_trace

PAGES = (".html", ".htm", "")
PICTURES = (".png", ".svg", ".gif", ".mp4")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``export``."""
    parser.add_argument("trace", type=Path, help="a trace saved by “race --trace” or by the page")
    parser.add_argument(
        "out",
        type=Path,
        help="what to write, by its ending: a page (.html), one round (.png, .svg), or the whole"
        " race as an animation (.gif, .mp4)",
    )
    parser.add_argument(
        "--round",
        type=int,
        metavar="N",
        help="of .png and .svg, from 1; default: the round with the most kept drafts",
    )
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="that .gif and .mp4 last; default: 10"
    )
    parser.add_argument("--dark", action="store_true", help="a picture in dark colours")


def export_main(args: argparse.Namespace) -> int:
    """Write the file; never over the trace."""
    if args.out.exists() and args.trace.exists() and args.out.samefile(args.trace):
        raise UserError(f"{args.out} is the trace itself; name another file.")
    kind = "." if args.out.name.endswith(".") else args.out.suffix.lower()
    if kind not in PAGES + PICTURES:
        raise UserError(
            f"{args.out} says neither a page nor a picture; name it .html, .png, .svg, .gif or"
            " .mp4."
        )
    events = load_trace(args.trace)
    data: str | bytes
    if kind in PICTURES:
        from ..pictures.export import picture

        data = picture(events, kind[1:], args.round, args.seconds, args.dark)
    else:
        from ..ui.export import export_html

        if args.round is not None or args.seconds is not None or args.dark:
            raise UserError("--round, --seconds and --dark are for pictures; a page shows it all.")
        data = export_html([event.to_dict() for event in events])
    write_output(args.out, data, "The picture" if kind in PICTURES else "The page")
    print(args.out)
    return 0
