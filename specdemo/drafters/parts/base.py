"""The types of a round, between a drafter and the engine.

The protocol is that of ``transformers.generation.CandidateGenerator`` (propose, then learn what was
accepted), with a tree of candidates in place of a chain and the target's hidden states passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ...events import Denoise, DraftNotes
from ...totals import Rule
from .params import MethodParams

if TYPE_CHECKING:  # the annotations only; drafters never run the target or touch its cache
    import torch

    Couple = Callable[[torch.Tensor, Sequence[int], torch.Tensor | None], torch.Tensor]


class NotFinite(ArithmeticError):
    """The numbers of one drafter pass are NaN or infinite, so nothing can be drafted from them. The
    engine goes on without a draft; the message is a sentence for whoever reads the race.
    """

    def __init__(self) -> None:
        super().__init__(
            "The drafter's numbers are not finite, so nothing is drafted from them; fetch or train"
            " it again."
        )


@dataclass
class Draft:
    """Candidates of one round: a tree over the anchor. A chain is a tree without branches.

    Attributes:
        tokens: ``[n]`` token ids, every parent before its children.
        parent: ``[n]`` index of each node's parent, -1 = the anchor. Two children of one parent
            never share a token.
        probs: ``[n]`` the drafter's probability of each node where it has one (for the page, never
            for acceptance).
        q: ``[n, V]`` float32, the full distribution node i was *sampled* from; only with the
            *ratio* rule. Where drafts of ``draws`` that share a node were sampled from different
            distributions: K of ``[depth, V]``, by draft and depth (0 = first).
        draws: the K drafts, sampled independently of each other, that were merged into this tree:
            per draft its node indices from the anchor down. Equal drafts are listed as often as
            they were sampled (the merged tree alone does not show that, and *ratio* over siblings
            is exact only with it). *ratio* needs it for a tree; *point-mass* chooses among them.
        origin: ``[n]`` where each node came from, for the page: ar, block, branch, copy, ngram,
            path 2, draft 3 ….
        frames: denoising steps of this draft (``round`` is filled in by the engine); empty unless
            ``context.record``.
        notes: see ``events.DraftMade.notes``.
        cascade: verify with cascade attention (D²SD sec. 3) instead of the layout-invariant one;
            near-ties may then resolve differently.
        left_out: nodes that belong to this draft but did not fit into ``context.budget``; 1 where
            it is only known that there are some.
    """

    tokens: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    probs: list[float | None] = field(default_factory=list)
    q: torch.Tensor | Sequence[torch.Tensor] | None = None
    draws: list[list[int]] | None = None
    origin: list[str] = field(default_factory=list)
    frames: list[Denoise] = field(default_factory=list)
    notes: DraftNotes = field(default_factory=DraftNotes)
    cascade: bool = False
    left_out: int = 0

    @classmethod
    def chain(
        cls, tokens: list[int], probs: list[float] | None = None, origin: str = "draft", **more: Any
    ) -> Draft:
        """A draft without branches."""
        n = len(tokens)
        return cls(
            list(tokens),
            list(range(-1, n - 1)),
            list(probs) if probs is not None else [None] * n,
            origin=[origin] * n,
            **more,
        )


@dataclass
class Context:
    """What a drafter may use in one round.

    Attributes:
        ids: prompt and output so far; ``ids[-1]`` is the anchor, which the target has chosen but
            not yet read.
        take_features: call to receive the target's hidden states ``[n, len(layer_ids) * hidden]``
            of all tokens committed since the last call, in order, anchor excluded (layer i's
            *output*, as HF ``hidden_states[i + 1]``), with the absolute position of the first.
        budget: the most nodes the engine will verify this round.
        record: whether frames and notes are wanted; without it they are not made.
        rule: the acceptance rule of this race.
        temperature: the target's temperature (0 = greedy).
        generator: randomness of the drafter, independent of the target's own noise.
        couple: turns the drafter's logits ``[n, Vd]`` of positions, with the target's ids of their
            columns (None: the same), into scores that hold the target's own noise; None where
            nothing is sampled or the rule is not *match*.
        pass_ms: expected milliseconds of a target pass of that many rows, measured at load.
        prompt_length: how many of ``ids`` are the prompt.
        remark: call it with a sentence that whoever reads the race should know; the engine says
            each sentence once.
    """

    ids: list[int]
    take_features: Callable[[], tuple[torch.Tensor, int]]
    budget: int
    record: bool = False
    rule: Rule = "match"
    temperature: float = 0.0
    generator: torch.Generator | None = None
    couple: Couple | None = None
    pass_ms: Callable[[int], float] = lambda rows: 1.0
    prompt_length: int = 0
    remark: Callable[[str], object] = lambda sentence: None


@dataclass
class Verdict:
    """The outcome of verifying a draft.

    Attributes:
        path: indices of the accepted nodes, from the anchor down.
        token: the target's own next token (correction, bonus or plain), the next anchor.
        draft_seconds, verify_seconds: measured time of the round.
    """

    path: list[int]
    token: int
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0


class Drafter(Protocol):
    """One method in one race.

    Attributes:
        layer_ids: target layers whose outputs it needs.
        weights: in words, the weights it runs on.
    """

    layer_ids: tuple[int, ...]
    weights: str

    @property
    def params(self) -> MethodParams:
        """The parameters in use: a block shorter than the default lowers those asked for."""
        ...

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        """Begin a new run and forget the last. ``capacity`` is the most positions it can reach."""

    def propose(self, context: Context) -> Draft:
        """At most ``context.budget`` candidates; an empty draft makes this a plain round.

        Raises:
            NotFinite: the drafter's numbers are none; the engine makes it a plain round.
        """
        ...

    def observe(self, verdict: Verdict) -> None:
        """Learn what became of the last draft."""
