"""What a drafter is trained on: masks, weights by position, and losses. Pure functions, no model
inside.

Shapes: ``A`` anchors, ``B`` slots of a block (slot 0 is the anchor), ``R`` rows, ``H`` hidden size,
``Vd`` draft vocabulary.
Sources: DFlash section 4.2 (weighted cross-entropy), D²SD section 3.4, Eq. 6 and 7 (variable
prefix), MDLM (random masks, 1/t), SpecDiff-2 section 5.1, Eq. 6 (streak distillation).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

# oneDNN keeps a kernel, megabytes with its buffers, for each of the last thousand sizes it met: 4.5
# GB of memory in a run whose every step brought another
ROW_MULTIPLE = 64
# decay of the position weights by block size (DFlash appendix A.1: 7 / 5 / 4 for 16 / 10 / 8)
DECAY = {16: 7.0, 10: 5.0, 8: 4.0}


def decay_for(block_size: int) -> float:
    """The decay length of the position weights: published for 8, 10 and 16 slots, half the block
    size otherwise.
    """
    return DECAY.get(block_size, block_size / 2)


def visible_prefix(
    anchors: int, block_size: int, beta: float, generator: torch.Generator | None = None
) -> torch.Tensor:
    """How many true tokens follow each anchor: ``[A]`` int64, Pr(l = j) ∝ beta**j for j = 0 .. B-2
    (D²SD Eq. 6).

    At least one slot stays a mask. ``generator`` is a CPU generator.
    """
    weights = beta ** torch.arange(block_size - 1, dtype=torch.float64)
    return torch.multinomial(weights, anchors, replacement=True, generator=generator)


def prefix_masks(visible: torch.Tensor, block_size: int) -> torch.Tensor:
    """``[A, B]`` bool, true where a slot is a mask: everything after the anchor and its ``visible``
    tokens.
    """
    return torch.arange(block_size, device=visible.device) > visible[:, None]


def random_masks(
    anchors: int, block_size: int, generator: torch.Generator | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """MDLM's forward process on a block: ``([A, B] bool masks, [A] t)``, each slot after the anchor
    masked with probability t ~ U(0, 1].

    Every block has at least one mask, drawn uniformly where chance gave none.
    """
    t = 1 - torch.rand(anchors, generator=generator)
    noise = torch.rand(anchors, block_size, generator=generator)
    noise[:, 0] = 2.0  # the anchor is always known
    masked = noise < t[:, None]
    masked[torch.arange(anchors), noise.argmin(1)] = True
    return masked, t


def nelbo_masks(
    anchors: int, block_size: int, generator: torch.Generator | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """MDLM's forward process as its bound needs it: ``([A, B] bool masks, [A, B] weights)``, each
    slot after the anchor masked with probability t and then weighted 1/t, nothing forced or cut, so
    that every slot's expected weight is 1.

    The blocks' t are evenly spread over (0, 1] from one random offset, as MDLM draws them, which
    takes variance away and leaves each of them uniform.
    """
    offset = torch.rand((), generator=generator, dtype=torch.float64)
    t = 1 - (torch.arange(anchors) + offset) / anchors
    t = t[torch.randperm(anchors, generator=generator)].clamp(min=1e-9).float()
    noise = torch.rand(anchors, block_size, generator=generator)
    noise[:, 0] = 2.0  # the anchor is always known
    masked = noise < t[:, None]
    return masked, masked / t[:, None]


def prefix_weights(visible: torch.Tensor, block_size: int, gamma_d: float) -> torch.Tensor:
    """``[A, B]`` weights exp(-(k - l - 1) / gamma_d) for slots k > l, 0 elsewhere (DFlash with l =
    0; D²SD Eq. 7).
    """
    ahead = torch.arange(block_size, device=visible.device) - visible[:, None] - 1
    return torch.where(ahead >= 0, torch.exp(-ahead / gamma_d), 0.0)


def mdlm_weights(
    masked: torch.Tensor, t: torch.Tensor, inverse_t: bool = False, ceiling: float = 8.0
) -> torch.Tensor:
    """``[A, B]`` weights of the masked slots: 1, or MDLM's 1/t (cut at ``ceiling``, which bounds
    the variance).
    """
    scale = (1 / t).clamp(max=ceiling) if inverse_t else torch.ones_like(t)
    return masked * scale[:, None]


def chunk_rows(head: torch.Tensor) -> int:
    """Rows of logits over ``head [Vd, H]`` that are alive at once. On a CPU at most 16 MiB of them:
    what is larger than 32 MiB is fetched from the system anew every time, page by page (2.0 s a
    training step instead of 1.8 on two cores with 16,384 words)."""
    return 4096 if head.device.type == "cuda" else max(64, 2**22 // len(head))


def pad_rows(x: torch.Tensor, fill: float = 0.0) -> torch.Tensor:
    """``[R, ...]`` with rows of ``fill`` behind it up to a multiple of ``ROW_MULTIPLE``, so that
    matrix products meet few sizes.
    """
    return F.pad(x, (0, 0) * (x.dim() - 1) + (0, -len(x) % ROW_MULTIPLE), value=fill)


def score_chunk(
    hidden: torch.Tensor,
    head: torch.Tensor,
    labels: torch.Tensor,
    teacher: torch.Tensor | None,
    mix: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """What :func:`row_scores` gives for a chunk of rows, and the scores' gradient with respect to
    ``hidden``, ``[R, H]`` float32. A pure function, so that it can be compiled: its sweeps over
    ``[R, Vd]`` cost as much as a matrix product where each stands alone.
    """
    label, known = labels.clamp(min=0)[:, None], (labels >= 0)[:, None]
    logits = (hidden.to(head.dtype) @ head.T).float()
    top = logits.amax(-1, keepdim=True)
    own = logits.gather(1, label)
    norm = top + (logits - top).exp().sum(-1, keepdim=True).log()
    logq = own - norm
    value, pull = (1 - mix) * logq, (logits - norm).exp()
    if teacher is not None:
        goal = (teacher.to(head.dtype) @ head.T).float().softmax(-1)
        value = value + mix * ((goal * logits).sum(-1, keepdim=True) - norm)
        pull = pull - mix * goal
    slope = (1 - mix) * head[label[:, 0]].float() - (pull.to(head.dtype) @ head).float()
    hit = (own == top) & known
    return (value * known)[:, 0], (logq * known)[:, 0], hit[:, 0], slope * known


class _RowScore(torch.autograd.Function):
    """Per row: (1 - mix)·log q(label) + mix·Σ P·log q, with its gradient found in the same sweep
    over chunks of rows.

    Row r's gradient is one vector, ``(y - q) @ head``, kept as ``[R, H]``: two matrix products in
    all and never more than ``chunk`` rows of logits alive. Most heads are frozen; the gradient of
    one that is trained takes a second sweep.
    """

    @staticmethod
    def forward(ctx, hidden, head, labels, teacher, mix, chunk, scorer):  # type: ignore[no-untyped-def]
        parts = []
        for at in range(0, len(hidden), chunk):
            rows = slice(at, at + chunk)
            goal = teacher[rows] if mix > 0 else None
            parts.append(scorer(hidden[rows], head, labels[rows], goal, mix))
        score, sure, hit, slope = (torch.cat(part) for part in zip(*parts, strict=True))
        trained = (hidden, head, labels) if ctx.needs_input_grad[1] else ()
        ctx.save_for_backward(slope.to(hidden.dtype), *trained)
        ctx.chunk = chunk
        ctx.mark_non_differentiable(sure, hit)
        return score, sure, hit

    @staticmethod
    def backward(ctx, grad, *_):  # type: ignore[no-untyped-def]
        slope, *trained = ctx.saved_tensors
        head_slope = _head_slope(*trained, grad, ctx.chunk) if trained else None
        return (grad[:, None] * slope).to(slope.dtype), head_slope, None, None, None, None, None


def _head_slope(
    hidden: torch.Tensor, head: torch.Tensor, labels: torch.Tensor, grad: torch.Tensor, chunk: int
) -> torch.Tensor:
    """``[Vd, H]``: Σ_r grad_r·(y_r − q_r) ⊗ hidden_r, of hard labels."""
    total = torch.zeros_like(head, dtype=torch.float32)
    for at in range(0, len(hidden), chunk):
        rows = slice(at, at + chunk)
        states, label = hidden[rows].to(head.dtype), labels[rows, None]
        share = -(states @ head.T).float().softmax(-1)
        share.scatter_add_(1, label.clamp(min=0), torch.ones_like(label, dtype=share.dtype))
        share *= grad[rows, None] * (label >= 0)
        total += (share.to(head.dtype).T @ states).float()
    return total.to(head.dtype)


def row_scores(
    hidden: torch.Tensor,
    head: torch.Tensor,
    labels: torch.Tensor,
    teacher: torch.Tensor | None = None,
    mix: float = 0.0,
    chunk: int = 2048,
    scorer: Callable[..., tuple[torch.Tensor, ...]] = score_chunk,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-likelihood of each row's label under the drafter, without ever holding ``[R, Vd]``
    logits.

    Args:
        hidden: ``[R, H]`` drafter states. head: ``[Vd, H]`` rows of the target's head, frozen, or
            of the drafter's own, which may be trained with hard labels.
        labels: ``[R]`` index into the *draft* vocabulary, -1 = not in it (score 0, no gradient;
            :func:`streak_loss` makes it a failure).
        teacher: ``[R, H]`` the target's own last states for those tokens, if ``mix`` > 0. Its
            distribution is taken over the draft vocabulary.
        mix: 0 = hard labels, 1 = the target's distribution, between = both.
        scorer: :func:`score_chunk`, or a compiled form of it.
    Returns:
        ``[R]`` float32 scores, ``[R]`` log q of the labels without a gradient (the scores, where
        ``mix`` is 0), and ``[R]`` bool, whether the drafter's first choice is the label.
    """
    if mix > 0 and teacher is None:
        raise ValueError("soft labels need the target's states")
    if mix > 0 and head.requires_grad:
        raise ValueError("soft labels are those of a frozen head")
    rows, teacher = len(hidden), None if teacher is None else pad_rows(teacher)
    score, sure, hit = _RowScore.apply(
        pad_rows(hidden), head, pad_rows(labels, -1), teacher, float(mix), chunk, scorer
    )
    return score[:rows], sure[:rows], hit[:rows]


def weighted_ce(score: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """−Σ w·score / Σ w over rows with positive weight; give 0 to rows outside the answer or the
    draft vocabulary.
    """
    return -(weight * score).sum() / weight.sum().clamp(min=1e-6)


def mean_ce(
    loss: str,
    score: torch.Tensor,
    weight: torch.Tensor,
    block: torch.Tensor,
    blocks: int,
    tokens: int,
) -> torch.Tensor:
    """The mean cross-entropy of the settings' ``loss`` over rows ``[R]``.

    Args:
        score, weight: ``[R]``. block: ``[R]`` which of the ``blocks`` a row is of. tokens: that
            have a label, masked or not: what the bound of ``nelbo`` is a mean over.
    """
    if loss == "per-block":
        return per_block_ce(score, weight, block, blocks)
    if loss == "nelbo":
        return -(weight * score).sum() / max(tokens, 1)
    return weighted_ce(score, weight)


def streak_of_rows(
    score: torch.Tensor,
    logq: torch.Tensor,
    alive: torch.Tensor,
    scored: torch.Tensor,
    exact: bool,
) -> torch.Tensor:
    """:func:`streak_loss` of rows ``[R]``, all slots of the blocks ``alive``, ``scored`` ``[S, B -
    1]`` in order: the paper's form (SpecDiff-2 Eq. 6) where ``exact``, else the detached one.
    """
    score, logq = score.view(alive.shape), logq.view(alive.shape)
    if exact:
        return streak_loss(score, alive, scored)
    return streak_loss(logq, alive, scored, score)


def per_block_ce(
    score: torch.Tensor, weight: torch.Tensor, block: torch.Tensor, blocks: int
) -> torch.Tensor:
    """D²SD's Eq. 7: −Σ w·score / Σ w over each block's own rows, then the mean over the blocks with
    a weight.

    Args:
        score, weight: ``[R]``. block: ``[R]`` int64, which of ``blocks`` the row belongs to.
    """
    total = weight.new_zeros(blocks).index_add(0, block, weight)
    share = weight / total[block].clamp(min=1e-6)
    return -(share * score).sum() / (total > 0).sum().clamp(min=1)


def streak_loss(
    logq: torch.Tensor,
    alive: torch.Tensor,
    scored: torch.Tensor | None = None,
    surrogate: torch.Tensor | None = None,
) -> torch.Tensor:
    """Streak distillation: −mean over blocks of Σ_m Π_{j≤m} q_j (SpecDiff-2 Eq. 6), the expected
    accepted length for K = 1.

    Args:
        logq: ``[A, B-1]`` log q of the true tokens after the anchor.
        alive: ``[A, B-1]`` bool, false where the token cannot be drafted (past the answer, outside
            the draft vocabulary): q = 0 there.
        scored: ``[A, B-1]`` bool, the slots that are masks (default all). A visible slot is right
            for free: q = 1 and no term of its own.
        surrogate: ``[A, B-1]`` scores s of :func:`row_scores` for the detached form −Σ_i sg(Π_{j<i}
            q_j)·s_i, whose gradient reaches late positions sooner; with s = log q it is the
            paper's, with the target's distribution as labels it has less noise.
    Returns:
        A scalar, the mean over the blocks with a term.
    """
    scored = torch.ones_like(alive) if scored is None else scored
    reach = (alive | ~scored).cumprod(1).bool()
    terms = reach & scored
    logq = torch.where(terms, logq, 0.0)
    total = logq.cumsum(1)
    value = (
        total.exp()
        if surrogate is None
        else (total - logq).exp().detach() * torch.where(terms, surrogate, 0.0)
    )
    return -(value * terms).sum() / terms.any(1).sum().clamp(min=1)
