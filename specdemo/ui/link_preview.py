"""The page as it goes out: compressed, with the title and description that other sites show for a
link to it.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from html import escape
from typing import Any

from .http_limits import PREFIX

TITLE = "SpecDemo"
DESCRIPTION = (
    "The same text, decoded twice: one token per pass of the model, and with whole blocks drafted"
    " by a small diffusion model and verified in one pass."
)
# Gradio's page names Gradio and its own picture, twice, and no setting changes that
_META = re.compile(rb'\s*<meta\s+(?:property="og:|name="twitter:)[^>]*>')
_TAGS = "".join(
    f'<meta {kind} content="{escape(text)}" />'
    for kind, text in (
        ('property="og:type"', "website"),
        ('property="og:title"', TITLE),
        ('property="og:description"', DESCRIPTION),
        ('name="description"', DESCRIPTION),
        ('name="twitter:card"', "summary"),
        ('name="twitter:title"', TITLE),
        ('name="twitter:description"', DESCRIPTION),
    )
).encode()


def with_preview(page: bytes) -> bytes:
    """Gradio's HTML page with the tags of this one."""
    head, end, rest = page.partition(b"<script>")
    return _META.sub(b"", head) + _TAGS + end + rest


def accepts_gzip(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request takes a compressed answer."""
    return any(name == b"accept-encoding" and b"gzip" in value for name, value in headers)


class LinkPreview:
    """An ASGI middleware for the page itself; everything else passes through."""

    def __init__(self, app: Any):
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or PREFIX in scope["path"] or scope["method"] != "GET":
            await self.app(scope, receive, send)
            return
        start: dict[str, Any] | None = None
        parts: list[bytes] = []

        async def collect(message: Any) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                headers = dict(message["headers"])
                if headers.get(b"content-type", b"").startswith(b"text/html"):
                    start = message
                    return
            if start is None or message["type"] != "http.response.body":
                await send(message)
                return
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                page = with_preview(b"".join(parts))
                changed = {}
                sent = {name for name, _ in start["headers"]}
                if accepts_gzip(scope["headers"]) and b"content-encoding" not in sent:
                    page = gzip.compress(page, 5)
                    changed = {b"content-encoding": b"gzip", b"vary": b"accept-encoding"}
                changed[b"content-length"] = str(len(page)).encode()
                kept = [(name, value) for name, value in start["headers"] if name not in changed]
                start["headers"] = [*kept, *changed.items()]
                await send(start)
                await send({"type": "http.response.body", "body": page})

        await self.app(scope, receive, collect)
