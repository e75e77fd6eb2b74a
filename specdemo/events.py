"""What happened, as plain data: the events of one race.

Events are append-only and hold ids, floats and text, never tensors or markup. A live run and a
recorded trace are the same list of events, so one renderer serves both. Knows nothing about torch
or gradio. Events are not validated when they are made, only when they are read from a file, see
:mod:`.traces`.

Every event is a flat JSON object whose ``kind`` names its class here. ``vocab`` fields map token id
(as a string) to that token's own text and are incremental: an id is sent with the first event that
uses it. The id -1 is a token that a serving engine did not name; it is equal to no other one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema
from typing_extensions import NotRequired, TypedDict

from .totals import RaceResult, Rule

UNNAMED = -1  # the id of a token that a serving engine did not name
LaneName = Literal["ar", "spec", "against"]
Left = Literal["against"]
TokenSource = Literal["accepted", "correction", "bonus", "plain"]
NodeStatus = Literal["accepted", "rejected", "unreached", "dropped"]
# a number that JSON writes as null if it is none, as a broken drafter's probabilities may be
MaybeNan = Annotated[
    float,
    Field(allow_inf_nan=True),
    BeforeValidator(lambda value: math.nan if value is None else value),
    WithJsonSchema({"type": ["number", "null"]}),
]
Candidate = tuple[int, MaybeNan]  # token id, its probability


@dataclass
class Event:
    """Base of all events. Fields named in ``SELDOM`` are not written where they are None."""

    SELDOM: ClassVar[tuple[str, ...]] = ()

    kind: str = field(init=False, kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        """This event as JSON-ready data, floats rounded to 6 significant digits."""
        fields = {k: v for k, v in vars(self).items() if v is not None or k not in self.SELDOM}
        return {"kind": self.kind} | {k: _jsonable(v) for k, v in fields.items()}


class Roofline(TypedDict):
    """What a pass of the target reads, however many rows it has, and computes for each row, and how
    fast this machine was measured to read and to compute.
    """

    pass_bytes: float
    row_flops: float
    bytes_per_second: float
    flops_per_second: float


class Against(TypedDict):
    """The left lane's method, where that is not plain decoding."""

    method: str
    params: dict[str, Any]
    weights: str


@dataclass
class Start(Event):
    """The race begins.

    Attributes:
        params: the method's own. sampling: the target's (temperature, top_k, top_p, min_p,
            repetition_penalty, seed).
        weights: which drafter weights are used, in words. borrowed: whether they were trained for
            another kind of drafter, as the pair has none of the method's own; None in older
            recordings.
        cost_ms: rows -> milliseconds of one target pass in the middle of the longest answer.
        one_row_ms: the same for one row with the library's masked attention kernel.
        most_nodes: of a draft that one pass verifies in this race; None: not known.
        ar_width: rows of a pass of the plain lane.
        baseline_ms: milliseconds a token of the baseline that speed-ups are taken against: the
            faster of the plain lane's pass and the one-row kernel.
        roofline: the least that passes can take; None where that is not known.
        target_pass: how the target's layers run: one operator after the other (``eager``), with
            compiled code between the products, or on a GPU as a graph captured once; ``scripted``
            or empty in older recordings.
        target_step: whether a pass is this project's own (``fast``) or one of transformers' own
            model (``general``); empty in older recordings. why_general: why it is, in words.
        why_host: where a race on a GPU is not captured as graphs, a sentence that says why.
        engine: the serving engine that decodes elsewhere; empty for our own.
        against: the left lane's method; without one that lane is plain decoding, which runs in
            every race.
    """

    SELDOM = ("against", "borrowed", "most_nodes", "roofline")

    kind: Literal["start"] = field(default="start", kw_only=True)
    prompt: str = ""
    prompt_ids: list[int] = field(default_factory=list)
    pair: str = ""
    method: str = ""
    rule: Rule = "match"
    params: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)
    max_new_tokens: int = 0
    hardware: str = ""
    dtype: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    weights: str = ""
    borrowed: bool | None = None
    cost_ms: dict[str, float] = field(default_factory=dict)
    one_row_ms: float | None = None
    most_nodes: int | None = None
    ar_width: int = 1
    baseline_ms: float | None = None
    roofline: Roofline | None = None
    target_pass: Literal["", "graph", "compiled", "scripted", "eager"] = ""
    target_step: Literal["", "fast", "general"] = ""
    why_general: str = ""
    why_host: str = ""
    engine: str = ""
    vocab: dict[str, str] = field(default_factory=dict)
    against: Against | None = None


@dataclass
class PrefillProgress(Event):
    """``read`` of the prompt's ``total`` tokens are read, and more chunks follow: only where the
    prompt is longer than one.

    With ``lane``, a serving engine has written ``read`` of at most ``total`` tokens of that lane,
    which are told later, together with the other lane's.
    """

    SELDOM = ("lane",)

    kind: Literal["prefill_progress"] = field(default="prefill_progress", kw_only=True)
    read: int = 0
    total: int = 0
    lane: LaneName | None = None


@dataclass
class Prefill(Event):
    """One lane has picked its first token; ``seconds`` is its time to first token: that of reading
    the prompt, which is read once for both lanes, and of its own choice.
    """

    kind: Literal["prefill"] = field(default="prefill", kw_only=True)
    lane: LaneName = "ar"
    id: int = 0
    text: str = ""
    logprob: float | None = None
    seconds: float = 0.0
    vocab: dict[str, str] = field(default_factory=dict)


@dataclass
class ArToken(Event):
    """The plain lane wrote one token.

    Attributes:
        position: index in the output, 0 = the token of the prefill.
        text: what this token adds to the text; empty while a character is incomplete.
        clock: the lane's own decode clock in seconds after this token.
        threads: that computed it, where other programs keep the rest busy.
    """

    SELDOM = ("threads",)

    kind: Literal["ar_token"] = field(default="ar_token", kw_only=True)
    position: int = 0
    id: int = 0
    text: str = ""
    logprob: float | None = None
    clock: float = 0.0
    vocab: dict[str, str] = field(default_factory=dict)
    threads: int | None = None


@dataclass
class Denoise(Event):
    """One denoising step of one block. All lists run over the block's positions (depth 1 first).

    Attributes:
        row: which of several blocks drafted together.
        label: for instance "block", "branch after 3", "draft 2 of 8".
        ids: best guess at each position. masked: whether it is still a mask after this step.
        conf: the drafter's probability of that guess.
        top: candidates at each position, best first.
        lane: set where it is the left lane's, as in ``DraftMade`` and ``Verify``.
    """

    SELDOM = ("lane",)

    kind: Literal["denoise"] = field(default="denoise", kw_only=True)
    round: int = 0
    step: int = 0
    steps: int = 1
    row: int = 0
    label: str = ""
    ids: list[int] = field(default_factory=list)
    masked: list[bool] = field(default_factory=list)
    conf: list[MaybeNan] = field(default_factory=list)
    top: list[list[Candidate]] = field(default_factory=list)
    vocab: dict[str, str] = field(default_factory=dict)
    lane: Left | None = None


class ScoredPath(TypedDict):
    """One path through a lattice (DiffuSpec)."""

    ids: list[int]
    score: MaybeNan


class SampledDraft(TypedDict):
    """One of several drafts sampled from one pass (SpecDiff-2).

    ``drafter_score`` is the expected number of accepted tokens by the drafter's probabilities,
    ``target_score`` the same by the target's (eq. 7); ``nodes`` index the draft's tree.
    """

    ids: list[int]
    drafter_score: MaybeNan
    nodes: NotRequired[list[int]]
    target_score: NotRequired[MaybeNan]


class BlockLength(TypedDict):
    """DiffuSpec's controller: the length ``k`` and the averages it follows."""

    k: int
    gen: MaybeNan
    acc: MaybeNan


class DraftNotes(TypedDict, total=False):
    """What is special about one method's draft. ``path`` is an index into ``paths``; ``chosen`` one
    into ``drafts``: that which was accepted furthest, under *point-mass* the selected one, in
    older recordings of the other rules the drafter's favourite; ``selection`` the one that eq. 7
    would select; ``boundaries`` are r(0), r(1), ... and ``branches`` the depths branched after
    (D²SD); ``expected`` tokens this round; ``left_out`` nodes did not fit into a pass (1: at least
    one); ``why`` a sentence, for instance why nothing was drafted.
    """

    lattice: list[list[Candidate]]
    paths: list[ScoredPath]
    path: int
    boundaries: list[MaybeNan]
    branches: list[int]
    drafts: list[SampledDraft]
    chosen: int
    selection: int
    length: BlockLength
    expected: MaybeNan
    left_out: int
    why: str


@dataclass
class DraftMade(Event):
    """The candidates of one round: a tree over the anchor, flattened so that parents come first.

    Attributes:
        parent: index of each node's parent, -1 = the anchor.
        q: the drafter's probability of each node.
        origin: where each node comes from: block, branch, ngram, ar ...
        seconds: time spent on drafting.
    """

    SELDOM = ("lane",)

    kind: Literal["draft"] = field(default="draft", kw_only=True)
    round: int = 0
    tokens: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    q: list[float | None] = field(default_factory=list)
    origin: list[str] = field(default_factory=list)
    notes: DraftNotes = field(default_factory=DraftNotes)
    seconds: float = 0.0
    vocab: dict[str, str] = field(default_factory=dict)
    lane: Left | None = None


class KeptToken(TypedDict):
    """One token written by a round.

    ``source`` is ``accepted`` (a draft), ``correction`` (the target's own token where a draft was
    wrong), ``bonus`` (behind an accepted draft's end) or ``plain`` (nothing was drafted); ``node``
    the index in the draft or null; ``p`` the target's probability of it, ``q`` the drafter's;
    ``rank`` its place among the drafter's candidates there (1 = first, null = not among them);
    ``step`` the denoising step after which the block held it for good.
    """

    id: int
    text: str
    source: TokenSource
    node: int | None
    p: float | None
    logprob: float | None
    q: float | None
    rank: int | None
    step: int | None


@dataclass
class Verify(Event):
    """The target's verdict on one round.

    Attributes:
        rows: width of the target pass.
        kept: the tokens written, in order.
        status: a word for each node: ``accepted``, ``rejected`` (its parent was kept, it was not),
            ``unreached``, or ``dropped`` (accepted, but the answer had ended before it).
        p: the target's probability of each node (null = not looked at).
        picks: the target's own token after the anchor, then after each node (null = not asked).
        cut: tokens dropped by the stop rule after they were verified.
        draft_seconds: spent on drafting.
        verify_seconds: on the target's pass, acceptance and moving its cache.
        rest_seconds: on what is left of the round: telling the drafter the verdict.
        predicted_ms: what the measured costs say this round should take: its target pass and the
            drafting time really spent, also when nothing was drafted.
        threads: see ``ArToken``. baseline_ms: that of ``Start``, where their number has changed.
        clock: the lane's own decode clock in seconds after this round.
        rule_p: like ``p``, after penalty, temperature and filters, where the rule used that.
        rule_q: the drafter's probability that *ratio* divided by.
        top: the target's likeliest tokens with their probabilities where each kept token stands,
            before temperature and filters; older recordings and captured rounds have none.
    """

    SELDOM = ("threads", "baseline_ms", "top", "lane", "rule_p", "rule_q")

    kind: Literal["verify"] = field(default="verify", kw_only=True)
    round: int = 0
    rows: int = 1
    kept: list[KeptToken] = field(default_factory=list)
    status: list[NodeStatus] = field(default_factory=list)
    p: list[float | None] = field(default_factory=list)
    picks: list[int | None] = field(default_factory=list)
    cut: int = 0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    rest_seconds: float = 0.0
    predicted_ms: float | None = None
    clock: float = 0.0
    vocab: dict[str, str] = field(default_factory=dict)
    threads: int | None = None
    baseline_ms: float | None = None
    top: list[list[Candidate]] | None = None
    lane: Left | None = None
    rule_p: list[float | None] | None = None
    rule_q: list[float | None] | None = None


@dataclass
class Done(Event):
    """The race is over; ``stopped`` is true when a person stopped it. ``against_text`` is the left
    lane's, where that is a method.
    """

    SELDOM = ("against_text",)

    kind: Literal["done"] = field(default="done", kw_only=True)
    result: RaceResult
    ar_text: str = ""
    spec_text: str = ""
    stopped: bool = False
    against_text: str | None = None


AnyEvent = Annotated[
    Start | PrefillProgress | Prefill | ArToken | Denoise | DraftMade | Verify | Done,
    Field(discriminator="kind"),
]


def _jsonable(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(v) for v in value]
    return value


def named(ids: Sequence[int]) -> bool:
    """Whether all tokens of an answer are known."""
    return bool(ids) and UNNAMED not in ids
