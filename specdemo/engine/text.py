"""Token ids to text, one token at a time, and where an answer ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..totals import FinishReason


class Detokenizer:
    """Text that each further token adds, never half a character.

    Byte-level tokens can end inside a character; its bytes are held back until it is whole
    (``flush`` gives what is left), and nothing else is.
    """

    # tokens of context re-decoded, enough for leading-space rules
    WINDOW = 6

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self._start = self._shown = 0  # that many characters of ids[start:] are already shown
        self._whole: list[int] = []  # where characters began with a token, since start

    def push(self, token: int) -> str:
        """The text that becomes certain with this token."""
        self.ids.append(token)
        text = self._decode(self._start)
        # an unfinished character reads as one or more U+FFFD, which the next bytes may replace
        certain = text.rstrip("\ufffd")
        new = self._show(certain)
        if len(certain) == len(text):
            self._advance()
        return new

    def flush(self) -> str:
        """What was held back, as U+FFFD."""
        return self._show(self._decode(self._start))

    def _decode(self, start: int) -> str:
        return self.tokenizer.decode(
            self.ids[start:], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def _show(self, text: str) -> str:
        new = text[self._shown :]
        self._shown = max(self._shown, len(text))
        return new

    def _advance(self) -> None:
        """Begin to decode later, but never inside a character."""
        self._whole.append(len(self.ids))
        start = self._start
        while self._whole and self._whole[0] <= len(self.ids) - self.WINDOW:
            start = self._whole.pop(0)
        if start != self._start:
            self._start = start
            self._shown = len(self._decode(start))


class StopRule:
    """Decides, token by token, whether the answer is over: ``eos``, ``stop`` (a stop string) or
    ``length``, in that order.

    Text is released only as far as it cannot become part of a stop string, so nothing shown is ever
    taken back. A stop string is cut from the text; the ids of the answer end with the token that
    completed it. Special tokens have no text: a stop string that is the name of one also ends the
    answer at its id.
    """

    def __init__(
        self, tokenizer: Any, eos_ids: Sequence[int], max_new_tokens: int, stop: Sequence[str] = ()
    ):
        self.eos, self.limit, self.stop = set(eos_ids), max_new_tokens, [s for s in stop if s]
        special = getattr(tokenizer, "added_tokens_decoder", {})
        self.stop_ids = {i for i, t in special.items() if t.special and t.content in self.stop}
        self.detokenizer = Detokenizer(tokenizer)
        self.text = ""  # everything released
        self._held = ""
        self.count = 0

    def push(self, token: int) -> tuple[str, FinishReason | None]:
        """Text released by this token, and the reason to stop after it (None = go on)."""
        self.count += 1
        reason: FinishReason | None = (
            "eos" if token in self.eos else "stop" if token in self.stop_ids else None
        )
        # 1) what is certain now; all there is where the answer ends here
        if reason:
            self._held += self.detokenizer.flush()
        else:
            self._held += self.detokenizer.push(token)
            if self.count >= self.limit:
                self._held += self.detokenizer.flush()
        # 2) a stop string in it
        hits = [i for i in (self._held.find(s) for s in self.stop) if i >= 0]
        if hits:
            self._held, reason = self._held[: min(hits)], "stop"
        elif reason == "eos":
            self._held += self.detokenizer.push(token) + self.detokenizer.flush()
        elif reason is None and self.count >= self.limit:
            reason = "length"
        # 3) what cannot become part of one
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
