"""The bench tab: reports that lie in ``assets/bench``, and a short run of our own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr


def bench_tab(server: Any, folder: Path, queue: str) -> None:
    gr.Markdown("Reports appear here.")
