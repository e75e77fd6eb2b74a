"""The verdict of one round as an event: what was kept, what fell, and with which probabilities."""

from __future__ import annotations

from ..drafters.parts.base import Draft
from ..events import Verify
from .accept import Accepted
from .sampling import Rows


def verify_event(
    draft: Draft, rows: Rows, accepted: Accepted, kept: list[tuple[int, str]], record: bool
) -> Verify:
    """A ``Verify`` event; probabilities and ranks are only worked out when somebody looks
    (``record``).

    Args:
        kept: (token, text) of the tokens that survived the stop rule, in order; never more than the
            path and the target's own token.
    """
    n = len(draft.tokens)
    walked = [-1, *accepted.path]  # the nodes whose row was asked, -1 = anchor
    on_path, written = set(accepted.path), set(accepted.path[: len(kept)])
    status = [
        (
            "accepted"
            if i in written
            else (
                "dropped"
                if i in on_path
                else "rejected"
                if draft.parent[i] in walked
                else "unreached"
            )
        )
        for i in range(n)
    ]
    leaf = walked[-1] not in draft.parent
    own = "plain" if not n else "bonus" if accepted.path and leaf else "correction"
    picks: list[int | None] = [None] * (n + 1)
    for node, token in zip(
        walked, [*(draft.tokens[i] for i in accepted.path), accepted.token], strict=True
    ):
        picks[node + 1] = token
    probs = {node: rows.raw_probs(node + 1).cpu() for node in walked} if record else {}
    p = [
        float(probs[draft.parent[i]][draft.tokens[i]]) if draft.parent[i] in probs else None
        for i in range(n)
    ]
    items = []
    for index, (token, text) in enumerate(kept):
        above = walked[index]
        node = accepted.path[index] if index < len(accepted.path) else None
        chance = float(probs[above][token]) if record else None
        items.append(
            {
                "id": token,
                "text": text,
                "source": own if node is None else "accepted",
                "node": node,
                "p": chance,
                "logprob": float(probs[above].log()[token]) if record else None,
                "q": None if node is None else draft.probs[node],
                "rank": _rank(draft, token, index) if record else None,
                "step": _settled(draft, token, index) if record else None,
            }
        )
    return Verify(kept=items, status=status, p=p, picks=picks)


def _rank(draft: Draft, token: int, index: int) -> int | None:
    """Place of the token among the drafter's recorded candidates at that depth (1 = first)."""
    for frame in draft.frames:
        if index < len(frame.top) and frame.top[index]:
            ids = [int(i) for i, _ in frame.top[index]]
            return ids.index(token) + 1 if token in ids else None
    return None


def _settled(draft: Draft, token: int, index: int) -> int | None:
    """The denoising step after which the position held this token for good, by the frames of the
    first row.
    """
    first = draft.frames[0].row if draft.frames else 0
    steps = [f for f in draft.frames if f.row == first and index < len(f.ids)]
    if not steps or steps[-1].ids[index] != token:
        return None
    settled = steps[-1].step
    for frame in reversed(steps):
        if frame.masked[index] or frame.ids[index] != token:
            break
        settled = frame.step
    return settled
