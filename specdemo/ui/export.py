"""A race as one HTML file that needs nothing else: the same renderer, the events inside, no
network.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..events import Event
from .bundle import bundle, style
from .streaming import as_dict

TEMPLATES = Path(__file__).with_name("templates")


def safe_json(data: Any) -> str:
    """JSON that can stand inside a script element: no ``<``, no line separators that old parsers
    take for line ends, which Jinja's ``tojson`` would leave in.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def export_html(events: Sequence[Event | dict[str, Any]], complete: int | None = None) -> str:
    """The whole page as text. Model text is in it only as JSON data and is drawn through
    ``textContent``.

    Args:
        complete: for how many rounds the events say how drafts were made, where not for all; the
            page then says so.
    """
    note = ""
    if complete is not None:
        note = (
            f"To keep this page small, how drafts were made is kept for the first {complete} rounds"
            " only; all tokens and verdicts are in it."
        )
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("export.html.j2").render(
        style=Markup(style()),
        script=Markup(bundle()),
        note=note,
        events=Markup(safe_json([as_dict(e) for e in events])),
    )
