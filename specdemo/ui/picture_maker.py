"""Pictures of a race for the page's buttons: one at a time, and none while a race is timed."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from typing import Any

from ..errors import UserError
from ..pictures.export import ANIMATIONS, STILLS, picture
from ..traces import parse_trace

BUSY = "Another picture is being drawn; press the button again in a few seconds."
RACING = "A race is being timed on this machine; a picture can be drawn when it is over."
TYPES = {"png": "image/png", "svg": "image/svg+xml", "gif": "image/gif", "mp4": "video/mp4"}


class PictureMaker:
    """``racing`` says whether a race's clocks run: drawing would slow it down."""

    def __init__(self, racing: Callable[[], bool]):
        self.racing = racing
        self.lock = threading.Lock()

    def make(self, trace: str, kind: Any, round_number: Any) -> dict[str, str]:
        """{"data": base64, "type": MIME type} of a picture of the race in ``trace``, a trace file's
        text; or {"error": a sentence}. ``round_number``, from 1, is of a still.
        """
        if kind not in STILLS + ANIMATIONS:
            return {"error": "Pictures are png, svg, gif or mp4."}
        if self.racing():
            return {"error": RACING}
        if not self.lock.acquire(blocking=False):
            return {"error": BUSY}
        try:
            number = round_number if kind in STILLS and isinstance(round_number, int) else None
            data = picture(parse_trace(trace), kind, number)
        except UserError as error:
            return {"error": str(error)}
        finally:
            self.lock.release()
        return {"data": base64.b64encode(data).decode(), "type": TYPES[kind]}
