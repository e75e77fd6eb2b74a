"""Hugging Face Space and local start: ``python app.py``."""

from __future__ import annotations

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

from specdemo.ui.page import build_demo, launch_options  # noqa: E402

demo = build_demo()

if __name__ == "__main__":
    demo.launch(**launch_options())
