"""What the page's Python side sends to the race view: one :data:`Message` at a time, tagged by
``type``. ``View.receive`` in ``static/view.js`` is the other end.

Gradio may drop a message when the next one follows at once, so a message of a race carries all that
the view needs to begin that race (``run``), and the number of the events so far (``offset``,
``total``), by which the view sees what it missed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

BEGINS = "Your race begins by itself when it is ready."


def pack(events: Sequence[Mapping[str, Any]]) -> str:
    """Events as one text: Gradio would patch a nested value piece by piece from one message to the
    next.
    """
    return json.dumps(events, ensure_ascii=False, separators=(",", ":"))


def _nonce() -> Any:
    """A field that makes a message different from the one before: Gradio reports only a value that
    changed, and a status that is repeated need not be reported.
    """
    return field(default_factory=lambda: uuid.uuid4().hex, init=False)


@dataclass(frozen=True)
class Run:
    """One race in the view.

    Attributes:
        id: another id than the last message's begins a new race in the view.
        live: whether it is being computed now, as opposed to recorded.
        stepping: the playhead waits before the first round instead of following the race.
        play: whether a recording starts to play by itself.
        badge: a word for where a recording is from.
        request: what was asked for, shown until the race itself says so and kept in the page's
            address for a reload. In the first message of a run.
    """

    id: str
    live: bool = True
    stepping: bool = False
    play: bool = True
    badge: str = ""
    request: dict[str, Any] | None = None


@dataclass(frozen=True)
class _Tagged:
    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Queued(_Tagged):
    """Run was pressed. ``request`` is None where it cannot run; its turn then ends in an
    :class:`Error`. ``text`` says how many races are ahead of it, if any.
    """

    request: dict[str, Any] | None
    text: str = ""
    type: Literal["queued"] = field(default="queued", init=False)
    nonce: str = _nonce()


@dataclass(frozen=True)
class Status(_Tagged):
    """A sentence about what a race is waiting for."""

    text: str
    run: Run | None = None
    type: Literal["status"] = field(default="status", init=False)


@dataclass(frozen=True)
class Events(_Tagged):
    """New events of a race.

    Attributes:
        offset: how many events of this run came before.
        events: the events as JSON text, see :func:`pack`.
        confirm: the view calls the server's ``drawn`` when they are on screen.
    """

    run: Run
    offset: int
    events: str
    confirm: bool = False
    type: Literal["events"] = field(default="events", init=False)


@dataclass(frozen=True)
class Error(_Tagged):
    """Something could not be done. ``total`` events of ``run`` were sent before; they stay."""

    text: str
    run: Run | None = None
    total: int = 0
    type: Literal["error"] = field(default="error", init=False)
    nonce: str = _nonce()


@dataclass(frozen=True)
class Advance(_Tagged):
    """Move the playhead to the next round."""

    type: Literal["advance"] = field(default="advance", init=False)
    nonce: str = _nonce()


@dataclass(frozen=True)
class Ended(_Tagged):
    """Nothing more comes, of ``run`` or of whatever is running. ``total`` events of it were sent;
    ``text`` is shown where there is something to say.
    """

    run: Run | None = None
    total: int = 0
    text: str = ""
    type: Literal["ended"] = field(default="ended", init=False)
    nonce: str = _nonce()


Message = Queued | Status | Events | Error | Advance | Ended
