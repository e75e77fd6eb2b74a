"""The table of peers: every way to decode the prompts, ours and other engines', fastest first, each
against our plain lane in the same trials. The one-row kernel, which the bench's baseline takes
where it is faster, is a row of its own here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .figures import Line
from .intervals import Timed, interval, ratio
from .methods import BASELINE, method_title
from .peers.names import ONE_ROW, PEER_TITLES
from .schema import PeerRow, PeerTable

OWN_TITLES = {BASELINE: "SpecDemo, plain", ONE_ROW: "SpecDemo, plain, one-row kernel"}


@dataclass(frozen=True)
class Run:
    """One timed answer beside the plain lane of its trial: decoded tokens and seconds of both."""

    prompt: str
    tokens: int
    seconds: float
    rounds: int | None
    same: bool | None
    base_tokens: int
    base_seconds: float


def peer_table(trials: Sequence[Line], session: Line, methods: Sequence[str]) -> PeerTable | None:
    """The rows of a bench with peers; None where it has none.

    Args:
        session: the last one, which names what ran.
    """
    known: dict[str, dict[str, Any]] = session["peers"]
    if not known:
        return None
    own = {
        "engine": f"SpecDemo {session['versions'].get('specdemo', '')}".strip(),
        "weights": "the model in memory",
        "dtype": session["dtype"],
        "threads": next((f["threads"] for f in known.values() if "threads" in f), None),
    }
    rows = [_row(BASELINE, OWN_TITLES[BASELINE], True, own, _plain_runs(trials))]
    for label in methods:
        drafts = session["methods"].get(label, {}).get("weights") or ""
        title = f"SpecDemo, {method_title(label)}"
        rows.append(_row(label, title, True, own | {"drafts": drafts}, _runs(trials, label)))
    for name, facts in known.items():
        mine = name == ONE_ROW
        title = OWN_TITLES[name] if mine else PEER_TITLES.get(name, name)
        comparable = facts.get("dtype") == session["dtype"]
        runs, failed = _peer_runs(trials, name, comparable)
        rows.append(_row(name, title, mine, facts, runs, failed))
    rows.sort(key=lambda row: -(row["ratio"] or 0.0))
    return {"rows": rows, "advice": advice(rows, session["hardware"])}


def _row(
    name: str,
    title: str,
    own: bool,
    facts: dict[str, Any],
    runs: Sequence[Run],
    failed: Sequence[str] = (),
) -> PeerRow:
    seconds, rounds = sum(run.seconds for run in runs), sum(run.rounds or 0 for run in runs)
    compared = [run.same for run in runs if run.same is not None]
    notes = [facts.get("missing", ""), facts.get("note", "")]
    if failed:
        notes.append(f"{len(failed)} answers failed: {failed[0]}")
    return {
        "name": name,
        "title": title,
        "own": own,
        "engine": facts.get("engine", ""),
        "weights": facts.get("weights", ""),
        "dtype": facts.get("dtype", ""),
        "threads": facts.get("threads"),
        "drafts": facts.get("drafts", ""),
        "runs": len(runs),
        "tokens_per_second": sum(run.tokens for run in runs) / seconds if seconds else None,
        "ratio": ratio(_timed_pairs(runs)),
        "interval": None if name == BASELINE else interval(_timed_pairs(runs)),
        "tokens_per_round": sum(run.tokens for run in runs) / rounds if rounds else None,
        "same_text": sum(compared) / len(compared) if compared else None,
        "note": " ".join(note for note in notes if note),
    }


# -- runs ------------------------------------------------------------------------------------------


def _timed(
    trial: Line,
    tokens: int,
    seconds: float,
    rounds: int | None = None,
    same: bool | None = None,
) -> list[Run]:
    """The run beside its trial's plain lane; nothing where one of them has no decoding."""
    first, second = trial["baseline"]
    base_tokens, base_seconds = 2 * (len(first["ids"]) - 1), first["seconds"] + second["seconds"]
    if base_tokens < 1 or base_seconds <= 0 or tokens < 1 or seconds <= 0:
        return []
    return [Run(trial["prompt"], tokens, seconds, rounds, same, base_tokens, base_seconds)]


def _plain_runs(trials: Sequence[Line]) -> list[Run]:
    runs = []
    for trial in trials:
        first, second = trial["baseline"]
        tokens = 2 * (len(first["ids"]) - 1)
        seconds = first["seconds"] + second["seconds"]
        runs += _timed(trial, tokens, seconds, tokens, trial["baseline_repeatable"])
    return runs


def _runs(trials: Sequence[Line], label: str) -> list[Run]:
    return [
        run
        for trial in trials
        for mine in [trial["runs"][label]]
        for run in _timed(
            trial,
            len(mine["ids"]) - 1,
            mine["seconds"],
            len(mine["accepted"]),
            mine["identical"],
        )
    ]


def _peer_runs(trials: Sequence[Line], name: str, comparable: bool) -> tuple[list[Run], list[str]]:
    """Timed runs, and the sentences of those that failed."""
    runs, failed = [], []
    for trial in trials:
        mine = trial["peers"].get(name)
        if mine is None:
            continue
        if "failed" in mine:
            failed.append(mine["failed"])
            continue
        same = mine["same"] if comparable else None
        runs += _timed(trial, mine["tokens"], mine["seconds"], mine["rounds"], same)
    return runs, failed


# -- figures ---------------------------------------------------------------------------------------


def _timed_pairs(runs: Sequence[Run]) -> list[Timed]:
    return [Timed(r.prompt, r.tokens, r.seconds, r.base_tokens, r.base_seconds) for r in runs]


def advice(rows: Sequence[PeerRow], hardware: str) -> str:
    """What a person who only wants speed should take here, and where our fastest row stands among
    those of its number type. Two rows whose intervals overlap are called about as fast.
    """
    timed = sorted((row for row in rows if row["ratio"]), key=lambda row: -(row["ratio"] or 0))
    ours = next((row for row in timed if row["own"]), None)
    others = [row for row in timed if not row["own"]]
    if ours is None or not others:
        return "No other engine could be measured here, so nothing is said about which is fastest."
    best = timed[0]
    if best["own"]:
        rival, text = others[0], f"{_shown(best)} is the fastest here ({hardware})"
    else:
        rival, text = ours, f"For speed alone take {_shown(best)} on this machine ({hardware})"
    sure = "though not clearly " if _beside(best, rival) != "ahead of" else ""
    text += f", {sure}ahead of {_shown(rival)}."
    same = next((row for row in others if row["dtype"] == ours["dtype"]), None)
    if same is None or same is rival or same is best:
        return text
    return (
        f"{text} In the same number type ({ours['dtype']}) ours is {_beside(ours, same)} the"
        f" fastest other engine, {_shown(same)}."
    )


def _beside(one: PeerRow, other: PeerRow) -> str:
    low, high = one["interval"] or [one["ratio"] or 0.0] * 2
    least, most = other["interval"] or [other["ratio"] or 0.0] * 2
    return "ahead of" if low > most else "behind" if high < least else "about as fast as"


def _shown(row: PeerRow) -> str:
    return f"{row['title']} ({row['tokens_per_second']:.0f} tokens per second)"
