"""One endpoint of an engine: requests, streams of server-sent events with arrival times, refusals.

What comes from there is bounded and never trusted. No sentence holds an address, a host or a key.
"""

from __future__ import annotations

import asyncio
import json
import queue
import re
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import httpx

from ..errors import UserError

MAX_LINE, MAX_ANSWER, MAX_REPLY = 4_000_000, 20_000_000, 4_000_000  # bytes
CONNECT, FIRST, NEXT, REPLY = 5.0, 120.0, 30.0, 10.0  # seconds that are waited for each
UNFIT = (400, 413, 422)  # statuses that speak of the request alone
LOOK = 0.05  # seconds between two looks at Stop
_ADDRESS = re.compile(r"https?://\S+|\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b|\blocalhost(:\d+)?\b", re.I)


@cache
def _certificates() -> ssl.SSLContext:
    """Whom https trusts, read once: a client of its own for each request would read it anew, which
    takes as long as many a pass.
    """
    return httpx.create_ssl_context(trust_env=False)


class Refused(UserError):
    """An endpoint does not take this request; others it may take."""


class Silent(UserError):
    """An endpoint does not answer at all, or not in time."""


class Line(NamedTuple):
    """One event of a stream: seconds since the request was sent, and its JSON object."""

    arrived: float
    data: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """An answer that is no stream; ``data`` is None where it is not JSON."""

    status: int
    text: str
    data: Any


class Endpoint:
    """Args: name: ``plain`` or ``speculative``, for sentences. url: without a slash at its end."""

    def __init__(self, name: str, url: str, key: str = ""):
        self.name, self._url, self._key = name, url, key
        self.headers = {"Accept-Encoding": "identity", "Connection": "close"}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"

    def __repr__(self) -> str:
        return f"Endpoint({self.name})"

    def say(self, what: str) -> UserError:
        return UserError(f"The {self.name} endpoint {what}")

    def get(self, path: str) -> Reply:
        """Raises UserError: it does not answer."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> Reply:
        """Raises UserError: it does not answer."""
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Reply:
        status, parts = 0, bytearray()

        async def work(put: Callable[[Any], None]) -> None:
            nonlocal status
            async with self._client() as client:
                request = client.build_request(method, self._url + path, json=body)
                response = await client.send(request, stream=True)
                status = response.status_code
                async for part in response.aiter_raw():
                    parts.extend(part)
                    if len(parts) > MAX_REPLY:
                        raise self.say(
                            "sent far more than was asked for; correct “kind” in models.yaml."
                        )

        async def bounded(put: Callable[[Any], None]) -> None:
            await self._refusals(asyncio.wait_for(work(put), CONNECT + REPLY))

        for _ in _Stream(bounded, threading.Event()):
            pass
        text = bytes(parts).decode("utf-8", "replace")
        return Reply(status, text, _parsed(text))

    def _client(self) -> httpx.AsyncClient:
        timeout = httpx.Timeout(None, connect=CONNECT, write=NEXT)
        return httpx.AsyncClient(
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
            headers=self.headers,
            verify=_certificates(),
        )

    async def _refusals(self, work: Any) -> None:
        """``work``, its failures as sentences."""
        try:
            await work
        except (asyncio.TimeoutError, httpx.TimeoutException):
            raise Silent(
                f"The {self.name} endpoint did not answer in time; it may be loading or busy: try"
                " again, or look at its log."
            ) from None
        except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.InvalidURL):
            raise Silent(
                f"The {self.name} endpoint does not answer; start it, or correct its address in"
                " models.yaml."
            ) from None
        except httpx.HTTPError:
            raise self.say("broke the connection; what had come is kept.") from None

    def stream(
        self, path: str, body: dict[str, Any], cancel: threading.Event
    ) -> Generator[Line, None, None]:
        """Lines as they come, read by a thread of their own so that a slow reader delays none.
        Ends at once where ``cancel`` is set; the connection is closed then, which frees the
        engine's slot.

        Raises:
            UserError: it refuses, breaks off, stalls, or sends what is no stream.
        """

        async def work(put: Callable[[Any], None]) -> None:
            await self._refusals(self._read(path, body, put))

        stream = _Stream(work, cancel)
        try:
            yield from stream
        finally:
            stream.close()

    async def _read(self, path: str, body: dict[str, Any], put: Callable[[Any], None]) -> None:
        async with self._client() as client:
            request = client.build_request("POST", self._url + path, json=body)
            began = time.perf_counter()
            response = await asyncio.wait_for(client.send(request, stream=True), FIRST)
            try:
                if response.status_code != 200:
                    raise self._refusal(response.status_code, await self._body(response))
                async for line in self._lines(response.aiter_raw()):
                    text = line.decode("utf-8", "replace").strip()
                    if text == "data: [DONE]":
                        return
                    if data := self._event(text):
                        put(Line(time.perf_counter() - began, data))
            finally:
                await response.aclose()

    async def _body(self, response: httpx.Response) -> str:
        parts = bytearray()
        async for part in response.aiter_raw():
            parts.extend(part)
            if len(parts) > 65_536:
                break
        return bytes(parts).decode("utf-8", "replace")

    async def _lines(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Lines of at most ``MAX_LINE`` bytes, each as soon as it is complete."""
        rest, total, patience = bytearray(), 0, FIRST
        while True:
            try:
                part = await asyncio.wait_for(parts.__anext__(), patience)
            except StopAsyncIteration:
                break
            except asyncio.TimeoutError:
                raise self.say(
                    f"has sent nothing for {patience:.0f} seconds; what had come is kept. Look at"
                    " its log, then try again."
                ) from None
            patience, total = NEXT, total + len(part)
            rest.extend(part)
            *lines, last = rest.split(b"\n")
            if total > MAX_ANSWER or len(last) > MAX_LINE or any(len(l) > MAX_LINE for l in lines):
                raise self.say("sent far more than was asked for; what had come is kept.")
            rest = bytearray(last)
            for line in lines:
                yield bytes(line)
        if rest:
            yield bytes(rest)

    def _event(self, text: str) -> dict[str, Any] | None:
        """The object of one line; None where it says nothing."""
        if not text or text.startswith((":", "event:", "id:", "retry:")):
            return None
        data = _parsed(text.removeprefix("data:"))
        if not isinstance(data, dict):
            raise self.say(
                "sent something that is no event of this engine; correct “kind” in models.yaml."
            )
        if "error" in data:
            raise self._refusal(200, text.removeprefix("data:"))
        if not text.startswith("data:"):
            raise self.say("answered without streaming; correct “kind” in models.yaml.")
        return data

    def _refusal(self, status: int, text: str) -> UserError:
        """What a refusal says, without addresses and keys."""
        if status in (401, 403):
            return self.say(
                "does not accept the key; set the variable that “key_env” in models.yaml names."
            )
        if 300 <= status < 400:
            return self.say(
                "answers with a redirect, which is not followed; name its own address in"
                " models.yaml."
            )
        data = _parsed(text)
        said = self._clean(error_message(data))
        error = self.say(
            f"refused the request ({said or f'status {status}'}); change that and try again."
        )
        told = error_code(data) if status == 200 else status  # 200: a stream that had begun
        return Refused(str(error)) if told in UNFIT else error

    def _clean(self, text: str) -> str:
        text = _ADDRESS.sub("…", " ".join(text.split()))
        host = httpx.URL(self._url).host
        for secret in (self._key, host):
            if secret:
                text = text.replace(secret, "…")
        return text.rstrip(".")[:300]

    def found(self, reply: Reply) -> Reply:
        """``reply`` where it is a success. Raises UserError with what it says where it is not."""
        if reply.status != 200:
            raise self._refusal(reply.status, reply.text)
        return reply


def error_message(data: Any) -> str:
    """The sentence in an engine's error, in any of the forms they have."""
    if not isinstance(data, dict):
        return ""
    for name in ("error", "detail", "message"):
        value = data.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict):
            value = value.get("message") or value.get("msg")
        if isinstance(value, str) and value:
            return value
    return ""


def error_code(data: Any) -> int | None:
    """The status inside an engine's error."""
    error = data.get("error") if isinstance(data, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else None


def _parsed(text: str) -> Any:
    """The JSON value, or None. NaN and infinity, which JSON does not have, are None too."""
    try:
        return json.loads(text, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        return None


class _Stream:
    """What an asynchronous reader puts, for a thread that waits for it; Stop ends it."""

    def __init__(self, work: Callable[[Callable[[Any], None]], Any], cancel: threading.Event):
        self._cancel, self._lines = cancel, queue.SimpleQueue[Any]()
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(work(self._lines.put))
        self._thread = threading.Thread(target=self._run, daemon=True, name="engine stream")
        self._thread.start()

    def _run(self) -> None:
        end: Exception | None = None
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        except Exception as error:
            end = error
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        self._lines.put(_End(end))

    def __iter__(self) -> Iterator[Any]:
        while not self._cancel.is_set():
            try:
                item = self._lines.get(timeout=LOOK)
            except queue.Empty:
                continue
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item

    def close(self) -> None:
        """Close the connection, and wait until it is."""
        end = time.monotonic() + NEXT
        while self._thread.is_alive() and time.monotonic() < end:
            try:
                # again where it was lost: before Python 3.12, wait_for drops a cancellation that
                # comes together with data
                self._loop.call_soon_threadsafe(self._task.cancel)
            except RuntimeError:  # it has ended by itself
                pass
            self._thread.join(0.2)


class _End(NamedTuple):
    error: Exception | None
