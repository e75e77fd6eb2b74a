"""The race view as a Gradio component: our script and style around an empty template, so no text is
ever markup.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

STATIC = Path(__file__).parent / "static"
SCRIPTS = (
    "dom.js",
    "trace.js",
    "parse.js",
    "lanes.js",
    "rounds.js",
    "tree.js",
    "charts.js",
    "player.js",
    "address.js",
    "view.js",
    "lesson.js",
    "main.js",
)


def script() -> str:
    """The renderer: the files of ``static/`` as one script (plain functions and classes, nothing
    global when wrapped).
    """
    return "\n".join((STATIC / name).read_text(encoding="utf-8") for name in SCRIPTS)


def head_script() -> str:
    return (STATIC / "raf_throttle.js").read_text(encoding="utf-8")


def style() -> str:
    return (STATIC / "race.css").read_text(encoding="utf-8")


def mounting_script() -> str:
    """What Gradio runs when the component appears: the style once per document, then the renderer
    on this element.
    """
    return f"""
if (!document.getElementById("specdemo-style")) {{
  const sheet = document.createElement("style");
  sheet.id = "specdemo-style";
  sheet.textContent = {json.dumps(style())};
  document.head.append(sheet);
}}
{script()}
mountGradio(element, props, server, watch);
"""


def race_view(
    value: dict[str, Any] | None,
    server_functions: list[Callable],
    lesson: list[dict[str, Any]] | None = None,
    **more: Any,
) -> gr.HTML:
    """Shows a race. ``value`` is one message, not the history: ``{"run", "from", "events", "live",
    ...}`` (see ``view.js``).

    An instance rather than a subclass of ``gr.HTML``: for subclasses Gradio writes a stub file
    beside the source.
    """
    return gr.HTML(
        value,
        html_template="",
        css_template="",
        js_on_load=mounting_script(),
        apply_default_css=False,
        server_functions=server_functions,
        lesson=lesson,
        **more,
    )
