"""The block strip of a round: which cells it has at each of its moments, as the page's
``strip_model.js`` shows them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ..events import DraftMade
from .race import Round

# shares of a round on screen; its parts are not to scale, as drafting is too short to be seen
MASKED, DENOISED, CHECKED, JUDGED = 0.1, 0.44, 0.58, 0.92
MAX_CELLS = 16

Phase = Literal["masks", "denoise", "draft", "check", "verdict"]


@dataclass(frozen=True)
class Moment:
    """Of a round: ``upto`` denoising frames are there, ``walked`` positions are judged."""

    phase: Phase
    upto: int = 0
    walked: int = 0


@dataclass(frozen=True)
class Cell:
    """A position: a token id, or none where it is still a mask; the drafter's ``conf``; the
    target's ``verdict`` on it, empty before it is known.
    """

    token: int | None
    conf: float | None = None
    verdict: str = ""


def moment_at(of: Round, part: float) -> Moment:
    """What is shown when ``part`` (0 to 1) of a round's time on screen has passed."""
    steps = _steps(of)
    if steps and part < MASKED:
        return Moment("masks")
    if steps and part < DENOISED:
        share = (part - MASKED) / (DENOISED - MASKED)
        return Moment("denoise", steps[min(int(share * len(steps)), len(steps) - 1)])
    if of.proposed and not steps and part < 2 * MASKED:
        return Moment("draft")
    if part < CHECKED:
        return Moment("check")
    share = min(1.0, (part - CHECKED) / (JUDGED - CHECKED))
    walked = math.ceil(share * (of.accepted + 1))
    return judged() if walked > of.accepted else Moment("verdict", walked=walked)


def judged() -> Moment:
    """The whole verdict is there."""
    return Moment("verdict", walked=10**6)


def _steps(of: Round) -> list[int]:
    """After how many frames each denoising step ends; blocks drafted together share a step."""
    ends: list[int] = []
    for i, frame in enumerate(of.frames):
        before = of.frames[i - 1] if i else None
        if before is not None and before.step == frame.step and before.row != frame.row:
            ends[-1] = i + 1
        else:
            ends.append(i + 1)
    return ends


def cells(of: Round, moment: Moment) -> list[Cell]:
    """The positions of the block, at most ``MAX_CELLS``."""
    row = of.frames[0].row if of.frames else 0
    if moment.phase == "masks":
        return [Cell(None) for _ in of.frames[0].ids[:MAX_CELLS]]
    if moment.phase == "denoise":
        frame = [f for f in of.frames[: moment.upto] if f.row == row][-1]
        return [
            Cell(None if masked else token, conf)
            for token, masked, conf in zip(frame.ids, frame.masked, frame.conf, strict=True)
        ][:MAX_CELLS]
    if of.draft is None:
        return []
    is_judged = moment.phase == "verdict" and of.verify is not None
    out = []
    for k, node in enumerate(_path(of, is_judged)[:MAX_CELLS]):
        verdict = of.verify.status[node] if is_judged and of.verify and k < moment.walked else ""
        out.append(Cell(of.draft.tokens[node], of.draft.q[node], verdict))
    return out


def own_token(of: Round, moment: Moment) -> tuple[int, int, str] | None:
    """The target's own token (its column, its id, its source) once the verdict has come there."""
    if moment.phase != "verdict" or moment.walked <= of.accepted:
        return None
    token = next((k for k in of.kept if k["source"] != "accepted"), None)
    return (of.accepted, token["id"], token["source"]) if token else None


def _path(of: Round, is_judged: bool) -> list[int]:
    """Nodes of the branch on screen: the drafter's likeliest, or its chosen draft; once the target
    judges, the one with which it went furthest.
    """
    draft = of.draft
    assert draft is not None
    main = _chosen(draft) or _likeliest(draft, -1)
    if not is_judged:
        return main
    accepted = [k["node"] for k in of.kept if k["source"] == "accepted" and k["node"] is not None]
    if main[: len(accepted)] == accepted:
        return main
    return accepted + _likeliest(draft, accepted[-1])


def _chosen(draft: DraftMade) -> list[int]:
    """Nodes of the draft that a method with several of them chose; none where it has no such."""
    drafts, chosen = draft.notes.get("drafts"), draft.notes.get("chosen", 0)
    if not drafts or not 0 <= chosen < len(drafts):
        return []
    nodes, at = [], -1
    for token in drafts[chosen]["ids"]:
        children = [i for i, p in enumerate(draft.parent) if p == at and draft.tokens[i] == token]
        if not children:
            return []
        at = children[0]
        nodes.append(at)
    return nodes


def _likeliest(draft: DraftMade, top: int) -> list[int]:
    """The likeliest child all the way down from ``top`` (-1: the anchor)."""
    path, at = [], top
    while children := [i for i, p in enumerate(draft.parent) if p == at]:
        at = max(children, key=lambda i: (_chance(draft.q[i]), -i))
        path.append(at)
    return path


def _chance(q: float | None) -> float:
    return -1.0 if q is None or math.isnan(q) else q
