"""What one lane keeps on the device, allocated once: its cache, its place in the text, one buffer
that a round's draft is uploaded into and one that its outcome is downloaded from.

Shapes: ``W`` rows of a pass, ``P = min(W, 33)`` the longest path from the anchor down (anchor
included), ``V`` vocabulary, ``F`` numbers of all features of one token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ...models.decoder import KVCache
from ...request import Sampling
from ..attention import LayoutInvariantAttention
from ..noise import signed
from ..target import Target

DEEPEST = LayoutInvariantAttention.NEAR  # the deepest draft
NOTHING = -1  # ends a path
ALL = 2**62  # more tokens than any vocabulary has


class Outcome(NamedTuple):
    """One round as the host hears of it. Entry j of the lists belongs to the j-th token kept: the
    accepted path's, then the target's own.

    Attributes:
        accepted: nodes kept.
        rows: the row of the pass that chose the token. scores: what was largest there.
        gaps: by how much. logprobs: the model's own log-probability of the token.
        node_logprobs: the same of every node behind its parent, by row.
    """

    accepted: int
    tokens: list[int]
    rows: list[int]
    scores: list[float]
    gaps: list[float]
    logprobs: list[float]
    node_logprobs: list[float]


def longest_path(width: int) -> int:
    """Rows of the longest path of a pass."""
    return min(width, DEEPEST + 1)


def packed_draft(tokens: list[int], parent: list[int], width: int) -> list[list[int]]:
    """``[W, 1 + P]``: per row its token and the rows of its path from the anchor down, then
    ``NOTHING``. Row 0 is the anchor, whose token the device knows; in its place stands the number
    of rows that count. The others are padding: children of the anchor that nobody asks for.

    Raises:
        ValueError: the draft does not fit the width, or is too deep.
    """
    longest, live = longest_path(width), len(tokens) + 1
    if live > width:
        raise ValueError(f"{live - 1} nodes in a pass of {width} rows")
    paths = [[0]]
    for row, above in enumerate(parent, 1):
        paths.append([*paths[above + 1], row])
    if len(max(paths, key=len)) > longest:
        raise ValueError(f"a draft of more than {longest - 1} tokens on one path")
    paths += [[0, row] for row in range(live, width)]
    return [
        [token, *path, *[NOTHING] * (longest - len(path))]
        for token, path in zip([live, *tokens, *[0] * (width - live)], paths, strict=True)
    ]


@dataclass(frozen=True)
class Numbers:
    """The numbers of sampling as device tensors of one element each, so that one graph serves
    every temperature and seed. What is off has a value that changes nothing.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    unlikely: torch.Tensor  # 1 - top_p: the probability of what may be dropped
    min_p: torch.Tensor  # its logarithm
    penalty: torch.Tensor
    seed: torch.Tensor

    @classmethod
    def on(cls, device: torch.device) -> Numbers:
        floats = [torch.ones(1, device=device) for _ in range(4)]
        ints = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2)]
        return cls(floats[0], ints[0], floats[1], floats[2], floats[3], ints[1])

    def set(self, sampling: Sampling) -> None:
        """Take over a request's numbers."""
        self.temperature.fill_(1.0 if sampling.greedy else sampling.temperature)
        self.top_k.fill_(sampling.top_k or ALL)
        self.unlikely.fill_(1 - sampling.top_p if sampling.top_p < 1 else -1.0)
        self.min_p.fill_(math.log(sampling.min_p) if sampling.min_p else -math.inf)
        self.penalty.fill_(sampling.repetition_penalty)
        self.seed.fill_(signed(sampling.seed))


class LaneState:
    """The buffers of one lane. Nothing here is ever replaced, only written into.

    Attributes:
        cache: of the target; its host-side ``length`` follows the device's once a round.
        length: ``[1]`` committed slots. start: ``[1]`` what it was before the last round.
        anchor: ``[1]`` the token that is chosen but not yet read.
        seen: ``[V + 1]`` bool, tokens of prompt and answer, anchor included; the last entry is a
            place for what is none.
        input: ``[W, 1 + P]`` int32, see :func:`packed_draft`.
        features: ``[P, F]`` of the tokens the last round committed, in order; behind them anything.
        logits: ``[W, V]`` of the last pass.
        out: what is downloaded: a round's outcome, then ``table`` numbers of the drafter's.
    """

    def __init__(
        self, target: Target, cache: KVCache, width: int, features: int = 0, table: int = 0
    ):
        device, longest = target.device, longest_path(width)
        self.cache, self.width, self.longest = cache, width, longest
        self.length, self.start, self.anchor = (
            torch.zeros(1, dtype=torch.int64, device=device) for _ in range(3)
        )
        self.seen = torch.zeros(target.vocab_size + 1, dtype=torch.bool, device=device)
        self.numbers = Numbers.on(device)
        self.input = torch.zeros(width, 1 + longest, dtype=torch.int32, device=device)
        self.features = torch.zeros(longest, features, dtype=target.dtype, device=device)
        self.logits = torch.zeros(width, target.vocab_size, dtype=target.dtype, device=device)
        self.outcome_size = 1 + 5 * longest + width
        self.out = torch.zeros(self.outcome_size + table, dtype=torch.float64, device=device)
        self._input_host, self._out_host = twin(self.input), twin(self.out)
        self._uploaded: tuple[list[int], list[int]] | None = None

    def begin(self, ids: list[int], sampling: Sampling) -> None:
        """``ids`` are prompt and anchor; everything but the anchor is in the cache."""
        self.length.fill_(self.cache.length)
        self.anchor.fill_(ids[-1])
        self.seen.zero_().index_fill_(0, torch.tensor(ids).to(self.seen.device), True)
        self.numbers.set(sampling)

    def upload(self, tokens: list[int], parent: list[int]) -> None:
        """The draft of the next round, in one copy that nothing waits for."""
        if self._uploaded != (tokens, parent):
            self._input_host.copy_(torch.tensor(packed_draft(tokens, parent, self.width)))
            self.input.copy_(self._input_host, non_blocking=True)
            self._uploaded = (list(tokens), list(parent))

    def download(self) -> None:
        """Begin the one copy of a round's results; they are here when the device is done."""
        self._out_host.copy_(self.out, non_blocking=True)

    def outcome(self) -> Outcome:
        """What was downloaded about the round."""
        numbers = self._out_host[: self.outcome_size].tolist()
        n, p = int(numbers[0]), self.longest
        tokens, rows, scores, gaps, logprobs = (
            numbers[1 + j * p : 2 + j * p + n] for j in range(5)
        )
        return Outcome(
            n,
            [int(token) for token in tokens],
            [int(row) for row in rows],
            scores,
            gaps,
            logprobs,
            numbers[1 + 5 * p :],
        )

    def table(self) -> torch.Tensor:
        """What was downloaded of the drafter's, float64 on the host."""
        return self._out_host[self.outcome_size :]


def twin(there: torch.Tensor) -> torch.Tensor:
    """A buffer of the same shape on the host, pinned where the other is on a GPU."""
    here = torch.zeros(there.shape, dtype=there.dtype)
    return here.pin_memory() if there.device.type == "cuda" else here
