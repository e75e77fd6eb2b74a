"""Token ids to text, one token at a time, and where an answer ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..events import FinishReason


class Detokenizer:
    """Text that each further token adds, never half a character.

    Byte-level tokens can end inside a character; their text is held back until it is whole
    (``flush`` gives what is left).
    """

    # tokens of context re-decoded, enough for leading-space rules and four-byte characters
    WINDOW = 6

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self._start = self._read = 0  # ids[start:read] is already shown and only gives context

    def _decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def push(self, token: int) -> str:
        self.ids.append(token)
        return self._new(hold=True)

    def flush(self) -> str:
        return self._new(hold=False)

    def _new(self, hold: bool) -> str:
        before, now = (
            self._decode(self.ids[self._start : self._read]),
            self._decode(self.ids[self._start :]),
        )
        if hold and now.endswith("\ufffd"):
            return ""
        self._start, self._read = (
            max(self._start, min(self._read, len(self.ids) - self.WINDOW)),
            len(self.ids),
        )
        return now[len(before) :]


class StopRule:
    """Decides, token by token, whether the answer is over: ``eos``, ``stop`` (a stop string) or
    ``length``, in that order.

    Text is released only as far as it cannot become part of a stop string, so nothing shown is ever
    taken back.
    """

    def __init__(
        self, tokenizer: Any, eos_ids: Sequence[int], max_new_tokens: int, stop: Sequence[str] = ()
    ):
        self.eos, self.limit, self.stop = set(eos_ids), max_new_tokens, [s for s in stop if s]
        self.detokenizer = Detokenizer(tokenizer)
        self.text = ""  # everything released
        self._held = ""
        self.count = 0

    def push(self, token: int) -> tuple[str, FinishReason | None]:
        """Text released by this token, and the reason to stop after it (None = go on)."""
        self.count += 1
        reason: FinishReason | None = "eos" if token in self.eos else None
        self._held += self.detokenizer.push(token)
        hits = [i for i in (self._held.find(s) for s in self.stop) if i >= 0]
        if hits and reason is None:
            self._held = self._held[: min(hits)]
            reason = "stop"
        elif reason is None and self.count >= self.limit:
            reason = "length"
        if reason in ("eos", "length"):
            self._held += self.detokenizer.flush()
        keep = 0 if reason else self._tail()
        released, self._held = (
            self._held[: len(self._held) - keep],
            self._held[len(self._held) - keep :],
        )
        self.text += released
        return released, reason

    def _tail(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        return max(
            (
                n
                for s in self.stop
                for n in range(1, min(len(s), len(self._held) + 1))
                if self._held.endswith(s[:n])
            ),
            default=0,
        )
