"""What the target's choice among several sampled drafts would be (SpecDiff-2, eq. 7), beside what
the rule in force kept of each.
"""

from __future__ import annotations

from ..events import DraftNotes, SampledDraft
from .accept import Accepted, expected_by_target
from .sampling import Rows
from .verify_event import Round


def with_selection(notes: DraftNotes, done: Round, greedy: bool, record: bool) -> DraftNotes:
    """``notes`` with the fate of each of its ``drafts``; as they are where there are none.

    Args:
        greedy: the target's distributions are one-hot, so that eq. 7 is what was accepted.
        record: work the target's scores out where the rule did not need them.
    """
    draws = done.draft.draws
    if not draws or "drafts" not in notes:
        return notes
    counts = [_accepted(draw, done.accepted) for draw in draws]
    scores = done.accepted.target_scores
    if not scores and greedy:
        scores = [float(count) for count in counts]
    elif not scores and record and isinstance(done.rows, Rows):
        scores = expected_by_target(done.draft, draws, done.rows.probs)
    drafts: list[SampledDraft] = [{**draft} for draft in notes["drafts"]]
    chosen = done.accepted.chosen
    out: DraftNotes = {
        **notes,
        "drafts": drafts,
        "chosen": counts.index(max(counts)) if chosen is None else chosen,
    }
    if scores:
        out["selection"] = scores.index(max(scores))
        for draft, score in zip(drafts, scores, strict=True):
            draft["target_score"] = score
    return out


def _accepted(draw: list[int], accepted: Accepted) -> int:
    """How many of a draft's nodes, from the anchor down, lie on the accepted path."""
    count = 0
    for node, kept in zip(draw, accepted.path, strict=False):
        if node != kept:
            break
        count += 1
    return count
