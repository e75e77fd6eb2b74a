"""The fields of a report, as ``report.json`` holds them.

Pydantic checks a file against these types before anything reads it; None means that a figure could
not be measured.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import TypeAdapter
from typing_extensions import NotRequired, TypedDict  # pydantic needs these before Python 3.12

from ..prompts import ALL

FORMAT: Final = "specdemo-bench"
VERSION: Final = 4


class Shares(TypedDict):
    """Shares of the decoding time, 0 to 1."""

    draft: float
    verify: float
    rest: float


class FewFigures(TypedDict):
    speedup: float | None
    tokens_per_round: float | None


class Figures(TypedDict):
    """One method over one category (or all).

    ``interval`` is the 95 % bootstrap interval of ``speedup`` over prompts, ``accepted_at[i]`` the
    share of rounds that accepted more than ``i`` drafted tokens, ``unflagged`` the figures without
    answers that are degenerate, end in a loop or copy their prompt; ``cut`` is the share of rounds
    whose tree did not fit into a pass; ``reliability`` is of :func:`.reliability.reliability`.
    """

    runs: int
    prompts: int
    speedup: float | None
    interval: list[float] | None
    prompt_quartiles: list[float] | None
    by_repeat: list[float | None]
    predicted: float | None
    tokens_per_second: float | None
    tokens_per_round: float | None
    accepted_per_round: float | None
    accepted_at: list[float]
    cut: NotRequired[float | None]
    reliability: NotRequired[list[list[float]]]
    rows_per_pass: float | None
    time: Shares | None
    degenerate: float | None
    non_degenerate: FewFigures
    unflagged: FewFigures | None
    identical: float | None


class PlanFields(TypedDict):
    """``BenchPlan``."""

    suite: str
    sha256: str
    prompts: int
    pair: str
    methods: list[str]
    repeats: int
    max_new_tokens: int
    sampling: dict[str, Any]
    peers: list[str]


class Environment(TypedDict):
    """Where and when it was measured.

    ``other_load`` is the share of the machine that other programs used, ``idle`` whether that is
    little.
    """

    pair: str
    hardware: str
    dtype: str
    versions: dict[str, str]
    python: str
    system: str
    cost_ms: dict[str, float] | None
    ar_width: int | None
    commits: list[str]
    started: str
    sessions: int
    warm_up_seconds: list[float]
    load_at_start: list[float | None]
    other_load: float | None
    idle: bool | None


class MethodFields(TypedDict):
    title: str
    weights: NotRequired[str | None]
    params: NotRequired[dict[str, Any] | None]
    most_nodes: NotRequired[int | None]
    rule: NotRequired[str | None]


class Baseline(TypedDict):
    """Plain decoding: its rate by category, and how much two runs of the same thing differ.

    ``loops`` is the share of answers that end in a loop, ``loop_at`` the median token at which
    those begin, ``echoes`` the share of answers that copy their prompt.
    """

    tokens_per_second: dict[str, float | None]
    repeat_ratio: list[float] | None
    ttft_seconds: float
    degenerate: float | None
    loops: float | None
    loop_at: float | None
    echoes: float | None
    repeatable: bool


class PromptFigures(TypedDict):
    """``methods``: label -> [speed-up, tokens per round]."""

    id: str
    category: str
    methods: dict[str, list[float | None]]


class PeerRow(TypedDict):
    """One way to decode the prompts, ours or another engine's.

    ``ratio`` is its tokens per second over our plain lane's in the same trials, ``interval`` the
    95 % bootstrap interval of that over prompts. ``same_text`` is the share of answers with the ids
    of plain decoding, None where the number types differ. ``note`` says why there are no figures,
    or what else a reader must know.
    """

    name: str
    title: str
    own: bool
    engine: str
    weights: str
    dtype: str
    threads: int | None
    drafts: str
    runs: int
    tokens_per_second: float | None
    ratio: float | None
    interval: list[float] | None
    tokens_per_round: float | None
    same_text: float | None
    note: str


class PeerTable(TypedDict):
    """``advice``: what to take for speed on this machine, in sentences made from the rows."""

    rows: list[PeerRow]
    advice: str


class ServedFields(TypedDict):
    """A serving engine that was asked, and what it drafts with, in words.

    ``clock``: whose seconds these are, the engine's or those of the arriving chunks. Of ``runs``
    answers, ``inferred`` is in how many one chunk is taken for one pass, ``totals`` in how many
    rounds are not told apart. ``not_told``: what it tells nothing of, so that a dash stands there.
    """

    engine: str
    drafts: str
    clock: Literal["engine", "arrival"]
    inferred: int
    totals: int
    runs: int
    not_told: list[str]


class Report(TypedDict):
    """``table[label][category or "all"]`` are the figures, ``paired[label][other]`` the speed of
    one method over another's in the same trials with the bounds of its 95 % interval.
    """

    format: Literal["specdemo-bench"]
    version: Literal[4]
    plan: PlanFields
    environment: Environment
    categories: list[str]
    methods: dict[str, MethodFields]
    baseline: Baseline
    table: dict[str, dict[str, Figures]]
    paired: dict[str, dict[str, list[float]]]
    prompts: list[PromptFigures]
    peers: PeerTable | None
    served: NotRequired[ServedFields]
    complete: bool
    refused: list[str]
    remarks: list[str]


_REPORT = TypeAdapter(Report)


def check_report(data: Any) -> Report:
    """``data`` as a report of this version.

    Raises:
        ValueError: a field is missing or of another type, or the parts do not belong together.
    """
    report = _REPORT.validate_python(data)
    labels, columns = set(report["methods"]), {ALL, *report["categories"]}
    if not (
        set(report["table"]) == labels
        and all(columns <= set(row) for row in report["table"].values())
        and columns <= set(report["baseline"]["tokens_per_second"])
        and all(labels <= set(prompt["methods"]) for prompt in report["prompts"])
        and all(len(q) == 3 for q in _all_quartiles(report))
        and all(len(pair) == 2 for p in report["prompts"] for pair in p["methods"].values())
        and all(len(row["interval"] or (0, 0)) == 2 for row in _peer_rows(report))
        and all(len(f["interval"] or (0, 0)) == 2 for f in _all_figures(report))
        and all(len(one) == 3 for f in _all_figures(report) for one in f.get("reliability", ()))
        and all(
            {label, *others} <= labels and all(len(figure) == 3 for figure in others.values())
            for label, others in report["paired"].items()
        )
    ):
        raise ValueError("the parts of the report do not belong together")
    return report


def _peer_rows(report: Report) -> list[PeerRow]:
    return report["peers"]["rows"] if report["peers"] else []


def _all_quartiles(report: Report) -> list[list[float]]:
    quartiles = (figures["prompt_quartiles"] for figures in _all_figures(report))
    found = [report["baseline"]["repeat_ratio"], *quartiles]
    return [three for three in found if three is not None]


def _all_figures(report: Report) -> list[Figures]:
    return [figures for row in report["table"].values() for figures in row.values()]
