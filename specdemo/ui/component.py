"""The race view as a Gradio component: our script and style around an empty template, so no text is
ever markup.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gradio as gr

from .bundle import STATIC, bundle, style


def head_script() -> str:
    """What stands in the page's head, before Gradio's own scripts."""
    return (STATIC / "raf_throttle.js").read_text(encoding="utf-8")


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
{bundle()}.mountGradio(element, props, server, watch);
"""


def race_view(
    value: dict[str, Any] | None,
    server_functions: list[Callable],
    lesson: dict[str, Any] | None = None,
    **more: Any,
) -> gr.HTML:
    """Shows a race. ``value`` is one message, not the history: see ``View.receive`` in
    ``static/view.js``.

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
