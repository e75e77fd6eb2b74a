"""The loss of a step of a stand-alone diffusion language model: whole texts with masks in them.

Each text is one of three: up to the end of a block that shows its anchor alone, up to the end of a
block that shows a variable prefix (both as drafts are asked for), or a whole row of whose answers
random tokens are masked (MDLM, arXiv 2406.07524).
Shapes: ``N`` rows of ``L`` tokens, ``A`` texts a row, ``S = N * A`` texts of ``n`` positions, ``B``
slots of a block (slot 0 is the anchor).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from ..models.kinds import DRAFTER_KINDS
from . import objectives
from .data import blocks_of, choose_anchors
from .diffusion_net import whole_rows
from .settings import Settings

if TYPE_CHECKING:
    from .step_loss import StepLoss


@dataclass
class Texts:
    """The texts of one step, drawn on the CPU.

    Attributes:
        ids: ``[S, n]`` true tokens. end: ``[S]`` positions of each text, masks included.
        masked: ``[S, n]`` bool. weight: ``[S, n]``, 0 where a position has no label.
        labels: ``[S, n]`` true tokens where they are an answer's, else -1.
        slots: ``[S, B - 1]`` positions of the block's slots after the anchor.
        count: texts that have a label.
    """

    ids: torch.Tensor
    end: torch.Tensor
    masked: torch.Tensor
    weight: torch.Tensor
    labels: torch.Tensor
    slots: torch.Tensor
    count: int


def draw_texts(loss: StepLoss, step: int) -> Texts:
    """The texts of step ``step``, a function of (seed, step)."""
    s, corpus = loss.settings, loss.corpus
    generator, rows = loss.batches.generator(step), loss.batches.rows_at(step)
    B = loss.draw_length(generator)
    tokens = torch.from_numpy(corpus.tokens[rows].astype("int64"))
    answer = torch.from_numpy(corpus.answer[rows])
    L = tokens.shape[1]

    # 1) A block of each text, and which texts are masked at random instead.
    anchors, valid = choose_anchors(answer, s.anchors, generator)
    shares = torch.tensor(s.shares or DRAFTER_KINDS[s.kind].block_shares, dtype=torch.float64)
    S = anchors.numel()
    which = torch.multinomial(shares, S, replacement=True, generator=generator)
    random, end = which == 2, anchors.flatten() + B
    end = torch.where(random, L, end)
    n = whole_rows(int(end.max()))
    A = anchors.shape[1]

    def by_text(x: torch.Tensor) -> torch.Tensor:
        """``[N, L]`` to ``[S, n]``, padded or cut."""
        return F.pad(x, (0, max(n - L, 0)))[:, :n].repeat_interleave(A, 0)

    ids, answers = by_text(tokens), by_text(answer)

    # 2) Masks and weights of the blocks, where they stand in their texts.
    visible = torch.where(which == 1, objectives.visible_prefix(S, B, s.beta, generator), 0)
    in_block = objectives.prefix_masks(visible, B)
    decay = s.gamma_d or objectives.decay_for(B)
    weight_of = objectives.prefix_weights(visible, B, decay)
    in_answer = (blocks_of(tokens, answer, anchors, B)[1] & valid[..., None]).flatten(0, 1)
    slot = torch.arange(n) - anchors.flatten()[:, None]
    own, slot = (slot >= 0) & (slot < B), slot.clamp(0, B - 1)
    masked = own & in_block.gather(1, slot)
    weight = masked * weight_of.gather(1, slot)
    labelled = own & in_answer.gather(1, slot)

    # 3) Masks and weights of whole rows.
    anywhere, weights = _random(s, S, n, generator)
    random_rows = random[:, None]
    masked = torch.where(random_rows, anywhere & answers, masked)
    weight = torch.where(random_rows, weights, weight)
    labelled = torch.where(random_rows, answers, labelled)
    labels = torch.where(labelled, loss.to_draft[ids], -1)
    labels = torch.where(labels < len(loss.head), labels, -1)
    weight = weight * masked * (labels >= 0)
    slots = anchors.flatten()[:, None] + torch.arange(1, B)
    return Texts(ids, end, masked, weight, labels, slots, int((labels >= 0).any(1).sum()))


def _random(
    s: Settings, texts: int, n: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random masks and their weights, ``[texts, n]`` each."""
    if s.loss == "nelbo":
        return objectives.nelbo_masks(texts, n, generator)
    masked, t = objectives.random_masks(texts, n, generator)
    return masked, objectives.mdlm_weights(masked, t, s.inverse_t)


def text_loss(
    loss: StepLoss, step: int, streak: bool, exact: bool
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """The loss of a step with gradient, the share of right first choices among what is scored, and
    how many texts it saw.

    Args:
        streak: the streak along the blocks (no text is masked at random then), in the paper's form
            (SpecDiff-2 Eq. 6) where ``exact``.
    """
    # 1) Draw; the streak needs every slot, cross-entropy those with a weight.
    texts = draw_texts(loss, step)
    keep_cpu = (
        (
            torch.arange(len(texts.slots))[:, None].expand_as(texts.slots).flatten(),
            texts.slots.flatten(),
        )
        if streak
        else texts.weight.nonzero(as_tuple=True)
    )
    keep = tuple(loss.to_device(k) for k in keep_cpu)
    picked = loss.to_device(texts.labels[keep_cpu])

    # 2) One pass over all texts, masks in place.
    ids = torch.where(texts.masked, loss.net.config.mask_token_id, texts.ids)
    with loss.autocast():
        states = loss.net.states(loss.to_device(ids), loss.to_device(texts.end))[keep]

    # 3) Score and reduce.
    head = loss.head.to(loss.precision or loss.head.dtype)
    score, logq, hit = objectives.row_scores(states, head, picked, chunk=loss.chunk)
    labelled = picked >= 0
    hit_share = (hit & labelled).sum() / labelled.sum().clamp(min=1)
    if streak:
        alive, scored = (
            loss.to_device(x.gather(1, texts.slots)) for x in (texts.labels >= 0, texts.masked)
        )
        value = objectives.streak_of_rows(score, logq, alive, scored, exact)
        return value, hit_share, texts.count
    weight = loss.to_device(texts.weight[keep_cpu])
    known = int((texts.labels >= 0).sum())
    value = objectives.mean_ce(loss.settings.loss, score, weight, keep[0], len(texts.ids), known)
    return value, hit_share, texts.count
