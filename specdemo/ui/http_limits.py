"""What is refused before Gradio reads it: routes that this page does not need, such as uploads, and
bodies that are too large. Also notes who reads which answers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException

from ..errors import first_line
from ..traces import MAX_TRACE_BYTES
from .readers import Readers

PREFIX = "/gradio_api/"
# what the page and its clients post to; an upload is in none of them
POSTS = ("run", "api", "call", "queue/join", "cancel", "reset", "component_server")
BODY_SECONDS = 60.0  # for a body to arrive
LARGE_AT_ONCE = 2  # bodies of whole traces, which the export of a page needs


class HttpLimits:
    """An ASGI middleware.

    Args:
        max_body: bytes of a request; a trace to be exported may have ``MAX_TRACE_BYTES`` more.
        fns: Gradio's functions by index. Those that only the browser runs cannot be called.
    """

    def __init__(
        self, app: Any, readers: Readers, max_body: int, fns: Mapping[int, Any] | None = None
    ):
        self.app, self.readers, self.max_body, self.fns = app, readers, max_body, fns or {}
        self.large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._read(scope, receive, send)
        else:
            await self._post(scope, receive, send)

    async def _read(self, scope: Any, receive: Any, send: Any) -> None:
        name = stream_name(scope)
        if name is None:
            await self.app(scope, receive, send)
            return
        session, stream = self.readers.opened(name), object()

        async def send_on(message: Any) -> None:
            with self.readers.send(stream, session):
                await send(message)

        try:
            await self.app(scope, receive, send_on)
        except RuntimeError as error:
            # a session or an event that Gradio does not know, as after a restart: it has said so
            if not isinstance(error.__cause__, HTTPException):
                raise
            await send({"type": "http.response.body", "body": b""})
        finally:
            self.readers.left(session)

    async def _post(self, scope: Any, receive: Any, send: Any) -> None:
        route = route_of(scope)
        headers = dict(scope["headers"])
        if not any(route == known or route.startswith(f"{known}/") for known in POSTS):
            await refuse(send, 404, "There is nothing to send to here; this page takes no files.")
            return
        if headers.get(b"content-type", b"").startswith(b"multipart/"):
            await refuse(send, 415, "This page takes no files; send JSON.")
            return
        export = route == "component_server"
        limit = self.max_body + (MAX_TRACE_BYTES if export else 0)
        length = headers.get(b"content-length", b"")
        known = int(length) if length.isdigit() else limit
        if known > limit:
            await refuse(send, 413, _too_large(limit))
        elif export and known > self.max_body:
            async with self.large:
                await self._pass(scope, receive, send, limit)
        else:
            await self._pass(scope, receive, send, limit)

    async def _pass(self, scope: Any, receive: Any, send: Any, limit: int) -> None:
        """Read the body, which may say nothing of its length, and pass it on whole."""
        try:
            body = await asyncio.wait_for(read_body(receive, limit), BODY_SECONDS)
        except asyncio.TimeoutError:
            await refuse(send, 408, "The request did not arrive in time; send it again.")
            return
        if body is None:
            await refuse(send, 413, _too_large(limit))
            return
        if route_of(scope).startswith(("run/", "api/")) and self._in_browser_only(body):
            await refuse(send, 400, "This is done in the page itself and cannot be called.")
            return
        first = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Any:
            return first.pop() if first else await receive()

        del body
        answered = False

        async def answer(message: Any) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            await self.app(scope, replay, answer)
        except Exception as error:  # Gradio's own, where names or values do not fit
            if answered:
                raise
            await refuse(
                send,
                400,
                f"This request cannot be answered ({first_line(error)}); “Use via API” on the page"
                " says what /race takes.",
            )

    def _in_browser_only(self, body: bytes) -> bool:
        try:
            index = json.loads(body)["fn_index"]
            fn = self.fns.get(index)
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
        return fn is not None and fn.fn is None


def route_of(scope: Any) -> str:
    """The path behind Gradio's prefix; empty for what is not Gradio's."""
    return scope["path"].partition(PREFIX)[2].strip("/")


def stream_name(scope: Any) -> str | None:
    """The session, or the event, whose answers this request streams."""
    route = route_of(scope)
    if route == "queue/data":
        query = parse_qs(scope["query_string"].decode("latin-1"))
        return query.get("session_hash", [None])[0]
    parts = route.split("/")
    return parts[-1] if parts[0] == "call" and len(parts) > 2 else None


async def read_body(receive: Any, limit: int) -> bytes | None:
    """The whole body, or None where it is longer than ``limit``."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > limit:
            return None
        if not message.get("more_body"):
            return bytes(body)


async def refuse(send: Any, status: int, sentence: str) -> None:
    """Answer with one sentence, as Gradio's own errors are: ``{"detail": sentence}``. The
    connection is closed, as the rest of the request was not read.
    """
    text = json.dumps({"detail": sentence}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def _too_large(limit: int) -> str:
    return f"This request is too large; at most {limit:,} bytes are read here."
