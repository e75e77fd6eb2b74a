"""QR codes of links, computed on this machine."""

from __future__ import annotations

import functools

LONGEST = 1200  # characters; more makes a code too fine for a phone at the back of a room


@functools.lru_cache(maxsize=64)
def qr_rows(text: str) -> list[str] | None:
    """The modules of a code that holds ``text``: a text of 0 and 1 for each row. None where it is
    no link, or too long for a code that can be read.
    """
    if not text.startswith(("http://", "https://")) or len(text) > LONGEST:
        return None
    import segno

    code = segno.make(text, error="l", micro=False)
    return ["".join("1" if module else "0" for module in row) for row in code.matrix]
