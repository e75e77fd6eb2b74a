"""Hugging Face Space and local start: ``python app.py``."""

from __future__ import annotations

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
ZERO_GPU = bool(os.environ.get("SPACES_ZERO_GPU"))
if ZERO_GPU:
    import spaces  # type: ignore[import-not-found]  # before torch; installed only there

from specdemo.ui.backend import ZeroGpuBackend, gpu_seconds, gpu_stream  # noqa: E402
from specdemo.ui.page import build_demo, launch_options  # noqa: E402

demo = build_demo(
    ZeroGpuBackend(spaces.GPU(duration=gpu_seconds)(gpu_stream)) if ZERO_GPU else None
)

if __name__ == "__main__":
    demo.launch(**launch_options())
