"""What the text so far says about the next token: the last place where the same n-gram occurred,
every token that followed it, and an n-gram model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence


class SuffixIndex:
    """Finds where the longest suffix of a growing text occurred before, most recent first (prompt
    lookup decoding).

    For every length n from ``shortest`` to ``longest`` it keeps the position behind the last
    occurrence of each n-gram, so an added token and a look-up both cost O(longest).
    """

    def __init__(self, shortest: int, longest: int) -> None:
        self.lengths = range(longest, shortest - 1, -1)
        self.ids: list[int] = []
        # n-gram -> index of the token that followed it last
        self._next: dict[tuple[int, ...], int] = {}

    def extend(self, ids: Sequence[int]) -> None:
        """Append tokens. An n-gram is entered only once the token behind it is known, so a suffix
        never finds itself.
        """
        for token in ids:
            at = len(self.ids)
            for n in self.lengths:
                if n <= at:
                    self._next[tuple(self.ids[at - n :])] = at
            self.ids.append(token)

    def extend_to(self, ids: Sequence[int]) -> None:
        """Append what is new in ``ids``, the whole text, which starts with what is known."""
        self.extend(ids[len(self.ids) :])

    def continuation(self, gamma: int) -> tuple[list[int], int]:
        """Up to ``gamma`` tokens that followed the longest known suffix, and that suffix's length
        (0 = none was found).

        A copy that reaches the end of the text continues with its own tokens: a repeating text is
        repeated again.
        """
        for n in self.lengths:
            if n > len(self.ids):
                continue
            at = self._next.get(tuple(self.ids[-n:]))
            if at is not None:
                period = len(self.ids) - at
                return [self.ids[at + k % period] for k in range(gamma)], n
        return [], 0


class ContinuationIndex:
    """The tokens that followed each n-gram of a growing text: up to ``width`` different ones, the
    last seen first.

    Where :class:`SuffixIndex` continues the text itself, this continues any path that a draft might
    take.
    """

    def __init__(self, longest: int, width: int) -> None:
        self.longest, self.width = longest, width
        self.ids: list[int] = []
        self._next: dict[tuple[int, ...], list[int]] = {}

    def extend_to(self, ids: Sequence[int]) -> None:
        """Append what is new in ``ids``, the whole text, which starts with what is known."""
        for token in ids[len(self.ids) :]:
            at = len(self.ids)
            for n in range(1, min(self.longest, at) + 1):
                seen = self._next.setdefault(tuple(self.ids[at - n :]), [])
                if token in seen:
                    seen.remove(token)
                seen.insert(0, token)
                del seen[self.width :]
            self.ids.append(token)

    def after(self, tail: tuple[int, ...]) -> tuple[Sequence[int], int]:
        """The tokens that followed the longest known suffix of ``tail``, and that suffix's length
        (0 = none was found).
        """
        for n in range(min(self.longest, len(tail)), 0, -1):
            seen = self._next.get(tail[len(tail) - n :])
            if seen:
                return seen, n
        return (), 0


class NgramModel:
    """An n-gram model over token ids, built online, with Witten-Bell interpolation.

    p(v | h) = (c(h v) + t(h) · p(v | h')) / (c(h) + t(h)), where c counts occurrences, t(h) is the
    number of different tokens seen after h and h' is h without its first token; below the empty
    history is the uniform distribution over ``vocab_size`` ids, or what ``base``, a model of other
    text, says.
    """

    def __init__(self, order: int, vocab_size: int, base: NgramModel | None = None) -> None:
        self.order, self.vocab_size, self.base = order, vocab_size, base
        self.ids: list[int] = []
        self._counts: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
        self._totals: dict[tuple[int, ...], int] = defaultdict(int)

    def add(self, ids: Sequence[int], count: int) -> None:
        """Count the n-gram ``ids``, ``order`` tokens that stood in a row ``count`` times: its last
        token behind each shorter history.
        """
        *history, token = ids
        for n in range(self.order):
            tail = tuple(history[len(history) - n :])
            row = self._counts[tail]
            row[token] = row.get(token, 0) + count
            self._totals[tail] += count

    def extend_to(self, ids: Sequence[int]) -> None:
        """Count what is new in ``ids``, the whole text, which starts with what is known."""
        for token in ids[len(self.ids) :]:
            at = len(self.ids)
            for n in range(min(self.order, at + 1)):
                history = tuple(self.ids[at - n :])
                row = self._counts[history]
                row[token] = row.get(token, 0) + 1
                self._totals[history] += 1
            self.ids.append(token)

    def prob(self, history: Sequence[int], token: int) -> float:
        """p(token | the last order − 1 tokens of history), in O(order)."""
        p = 1.0 / self.vocab_size if self.base is None else self.base.prob(history, token)
        for n in range(min(self.order - 1, len(history)) + 1):
            row = self._counts.get(tuple(history[len(history) - n :]))
            if not row:
                break
            kinds, total = len(row), self._totals[tuple(history[len(history) - n :])]
            p = (row.get(token, 0) + kinds * p) / (total + kinds)
        return p
