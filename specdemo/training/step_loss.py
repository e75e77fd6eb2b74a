"""The loss of one training step: draw the step's rows and blocks, run the frozen target and the
drafter, score the slots that carry loss.

Shapes: ``N`` rows of ``L`` tokens a step, ``A`` anchors a row, ``B`` slots a block (slot 0 is the
anchor), ``R`` slots that carry loss, ``H`` hidden size, ``Vd`` draft vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from ..models.kinds import DRAFTER_KINDS
from . import objectives
from .compiling import compiled
from .data import Batches, Corpus, blocks_of, choose_anchors
from .diffusion_texts import text_loss
from .kept import KeptReadings, rows_within
from .markov import markov_loss
from .packed import HiddenStateTaps, packed_blocks, read_by
from .settings import Settings


@dataclass
class StepResult:
    """A step's loss (a scalar with gradient), the share of right first choices (in first slots for
    block drafters), and how many blocks (``ar``: tokens) it saw.
    """

    loss: torch.Tensor
    hit_share: torch.Tensor
    anchors: int


@dataclass
class BlockBatch:
    """The blocks of one step, drawn on the CPU.

    Attributes:
        rows: ``[N]`` row numbers. tokens: ``[N, L]`` int64.
        anchors: ``[N, A]`` positions of slot 0.
        truth: ``[N, A, B]`` true tokens. masked: ``[N, A, B]`` bool.
        weight: ``[N, A, B]`` by position, 0 where a slot has no label.
        labels: ``[N, A, B]`` index into the draft vocabulary, -1 = cannot be drafted.
        anchor_count: anchors that count; rows with few answer tokens are padded.
    """

    rows: list[int]
    tokens: torch.Tensor
    anchors: torch.Tensor
    truth: torch.Tensor
    masked: torch.Tensor
    weight: torch.Tensor
    labels: torch.Tensor
    anchor_count: int


class StepLoss:
    """Computes the loss of any step; what it draws is a function of (seed, step).

    Args:
        target: HF causal LM, frozen, on its device. net: float32 drafter on the same device.
        vocab_ids: ``[Vd]`` target ids of the draft vocabulary, None = all.
    """

    def __init__(
        self,
        target: Any,
        net: Any,
        corpus: Corpus,
        settings: Settings,
        vocab_ids: torch.Tensor | None = None,
    ):
        self.net, self.corpus, self.settings = net, corpus, settings
        self.embedding = target.get_input_embeddings().weight
        self.device = self.embedding.device
        head = target.get_output_embeddings().weight
        self.head = head if vocab_ids is None else head[vocab_ids.to(self.device)].contiguous()
        if settings.kind == "diffusion-lm":
            self.head = net.head
        self.chunk = objectives.chunk_rows(self.head)
        self.to_draft = torch.arange(head.shape[0])
        if vocab_ids is not None:
            self.to_draft = torch.full((head.shape[0],), -1).scatter_(
                0, vocab_ids.cpu(), torch.arange(len(vocab_ids))
            )
        self.precision = torch.bfloat16 if head.dtype == torch.bfloat16 else None
        # hard labels of a drafter that reads the text alone need nothing of the target
        self.taps = (
            None
            if not net.layer_ids and settings.mix == 0
            else HiddenStateTaps(target, net.layer_ids)
        )
        self.kept_bytes = 0  # of what the target said, at most
        self.readings = self._kept_readings(head.shape[1] * head.dtype.itemsize)
        self.batches = Batches(
            len(corpus),
            settings.batch,
            settings.seed,
            settings.reuse,
            self.readings.rows if self.readings else 0,
        )
        self.blocks = compiled(packed_blocks) if settings.compile else packed_blocks
        self.read_net = compiled(net) if settings.compile else net
        score = objectives.score_chunk
        self.scorer = compiled(score, any_size=True) if settings.compile else score

    def _kept_readings(self, state_bytes: int) -> KeptReadings | None:
        """Readings of the target, as many rows' of them as the memory set aside for them holds.

        Args:
            state_bytes: of one of the target's states.
        """
        if self.taps is None:
            return None
        s = self.settings
        states = len(self.taps.layer_ids) + (s.mix > 0)
        row_bytes = self.corpus.tokens.shape[1] * states * state_bytes
        rows = rows_within(s.keep, row_bytes)
        self.kept_bytes = min(rows, len(self.corpus)) * row_bytes
        return KeptReadings(self.taps.forward, rows, s.mix > 0)

    def __call__(self, step: int, progress: float) -> StepResult:
        """The loss of step ``step``, when the share ``progress`` of the budget is used."""
        kinds = {"ar": self.ar, "markov": self.markov, "diffusion-lm": self.texts}
        return kinds.get(self.settings.kind, self.block)(step, progress)

    # -- drawing on the CPU ------------------------------------------------------------------------

    def draw_length(self, generator: torch.Generator) -> int:
        """Slots of this step's blocks. Short ones cost less and are what most rounds ask for; slots
        see each other, so each length is practised.
        """
        lengths = self.settings.lengths
        if not lengths:
            return self.net.block_size
        return lengths[int(torch.randint(len(lengths), (), generator=generator))]

    def draw_masks(
        self, blocks: int, B: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Masks and weights ``[blocks, B]`` of a mixture of the three kinds of blocks: no visible
        token, a variable prefix, random masks.
        """
        s = self.settings
        if s.loss == "nelbo":  # of random masks alone
            return objectives.nelbo_masks(blocks, B, generator)
        kinds_shares = s.shares or DRAFTER_KINDS[s.kind].block_shares
        shares = torch.tensor(kinds_shares, dtype=torch.float64)
        which = torch.multinomial(shares, blocks, replacement=True, generator=generator)
        prefix = objectives.visible_prefix(blocks, B, s.beta, generator)
        visible = torch.where(which == 1, prefix, 0)
        masked = objectives.prefix_masks(visible, B)
        weight = objectives.prefix_weights(visible, B, s.gamma_d or objectives.decay_for(B))
        noisy, t = objectives.random_masks(blocks, B, generator)
        random = (which == 2)[:, None]
        return (
            torch.where(random, noisy, masked),
            torch.where(random, objectives.mdlm_weights(noisy, t, s.inverse_t), weight),
        )

    def draw_blocks(self, step: int) -> BlockBatch:
        """Rows, anchors, masks, weights and labels of a step. All choices are made on the CPU, so
        that the device never waits.
        """
        generator, rows = self.batches.generator(step), self.batches.rows_at(step)
        B = self.draw_length(generator)
        tokens = torch.from_numpy(self.corpus.tokens[rows].astype("int64"))
        answer = torch.from_numpy(self.corpus.answer[rows])
        anchors, valid = choose_anchors(answer, self.settings.anchors, generator)
        truth, in_answer = blocks_of(tokens, answer, anchors, B)
        masked, weight = (
            x.view(truth.shape) for x in self.draw_masks(anchors.numel(), B, generator)
        )
        labels = torch.where(in_answer & valid[..., None], self.to_draft[truth], -1)
        weight = weight * (labels >= 0)
        count = int(valid.sum())
        return BlockBatch(rows.tolist(), tokens, anchors, truth, masked, weight, labels, count)

    # -- one step ----------------------------------------------------------------------------------

    def to_device(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` on the device, without waiting for the copy."""
        if self.device.type != "cuda":
            return x
        return x.pin_memory().to(self.device, non_blocking=True)

    def autocast(self) -> torch.autocast:
        """The precision of a pass, as a context."""
        return torch.autocast(self.device.type, self.precision, enabled=self.precision is not None)

    def _fill(
        self, batch: BlockBatch, ids: torch.Tensor, anchors: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The drafter's states ``[N, A, B, H]`` and the target's last states ``[N, L, H]``, empty
        where nothing asks for them.
        """
        features = last = self.embedding[:0]
        if self.readings is not None:
            features, last = self.readings.of(batch.rows, ids)
        with self.autocast():
            hidden = self.blocks(
                self.net,
                self.embedding,
                read_by(self.net, self.embedding, ids, features),
                self.to_device(batch.truth),
                self.to_device(batch.masked),
                anchors,
            )
        return hidden, last

    def streak_at(self, progress: float) -> tuple[bool, bool]:
        """Whether the loss is the streak, and whether in its exact form, when the share
        ``progress`` of the budget is used.
        """
        s = self.settings
        streak_from = DRAFTER_KINDS[s.kind].streak_from if s.streak_from < 0 else s.streak_from
        streak = progress >= streak_from
        paper = s.kind in ("streak", "diffusion-lm")
        return streak, streak and paper and progress >= s.exact_from

    def texts(self, step: int, progress: float) -> StepResult:
        """The loss of a stand-alone diffusion language model, see :mod:`.diffusion_texts`."""
        return StepResult(*text_loss(self, step, *self.streak_at(progress)))

    def block(self, step: int, progress: float) -> StepResult:
        """Weighted cross-entropy, or the streak in the last part of the budget."""
        s = self.settings
        streak, exact = self.streak_at(progress)

        # 1) Draw the blocks; the streak needs every slot, cross-entropy those with a weight.
        batch = self.draw_blocks(step)
        weight, labels = batch.weight[..., 1:], batch.labels[..., 1:]
        carries = torch.ones_like(weight, dtype=torch.bool) if streak else weight > 0
        keep_cpu = carries.nonzero(as_tuple=True)
        keep = tuple(self.to_device(k) for k in keep_cpu)
        picked = self.to_device(labels[keep_cpu])
        ids, anchors = self.to_device(batch.tokens), self.to_device(batch.anchors)

        # 2) One reading of the rows by the target, one pass of the drafter over all blocks.
        hidden, last = self._fill(batch, ids, anchors)

        # 3) Soft labels: the state that predicts the token at anchor + k stands one position
        #    earlier.
        mix, teacher = 0.0 if exact else s.mix, None
        if mix > 0:
            where = (anchors[keep[0], keep[1]] + keep[2]).clamp(max=ids.shape[1] - 1)
            teacher = last[keep[0], where]

        # 4) Score the slots without ever holding all their logits.
        score, logq, hit = objectives.row_scores(
            hidden[:, :, 1:][keep], self.head, picked, teacher, mix, self.chunk, self.scorer
        )
        first = (keep[2] == 0) & (picked >= 0)
        hit_share = (hit & first).sum() / first.sum().clamp(min=1)

        # 5) Reduce.
        if not streak:
            loss = self._reduce(score, self.to_device(weight[keep_cpu]), keep, batch)
            return StepResult(loss, hit_share, batch.anchor_count)
        alive, scored = (
            self.to_device(x.flatten(0, 1)) for x in (labels >= 0, batch.masked[..., 1:])
        )
        loss = objectives.streak_of_rows(score, logq, alive, scored, exact)
        return StepResult(loss, hit_share, batch.anchor_count)

    def _reduce(
        self,
        score: torch.Tensor,
        weight: torch.Tensor,
        keep: tuple[torch.Tensor, ...],
        batch: BlockBatch,
    ) -> torch.Tensor:
        """:func:`.objectives.mean_ce` over rows ``[R]`` that stand at ``keep`` in the batch."""
        N, A = batch.anchors.shape
        block, tokens = keep[0] * A + keep[1], int((batch.labels[..., 1:] >= 0).sum())
        return objectives.mean_ce(self.settings.loss, score, weight, block, N * A, tokens)

    def markov(self, step: int, progress: float) -> StepResult:
        """The Markov head's cross-entropy, see :func:`.markov.markov_loss`; the block drafter below
        it is frozen.
        """
        batch = self.draw_blocks(step)
        weight = batch.weight[..., 1:]
        keep_cpu = (weight > 0).nonzero(as_tuple=True)
        # the first slot's block has seen the token before it
        keep_cpu = tuple(k[keep_cpu[2] > 0] for k in keep_cpu)
        keep = tuple(self.to_device(k) for k in keep_cpu)
        labels = self.to_device(batch.labels[..., 1:][keep_cpu])
        weights = self.to_device(weight[keep_cpu])
        ids, anchors = self.to_device(batch.tokens), self.to_device(batch.anchors)
        with torch.no_grad():
            hidden, _ = self._fill(batch, ids, anchors)
        before = ids[keep[0], anchors[keep[0], keep[1]] + keep[2]]
        loss, hit = markov_loss(
            self.net,
            self.embedding,
            self.head,
            hidden[:, :, 1:][keep].float(),
            before,
            labels,
            weights,
            self.chunk,
        )
        return StepResult(loss, hit.float().mean(), batch.anchor_count)

    def ar(self, step: int, progress: float) -> StepResult:
        """Next-token loss over every answer token of the step's rows."""
        s, rows = self.settings, self.batches.rows_at(step)
        tokens = torch.from_numpy(self.corpus.tokens[rows].astype("int64"))
        answer = torch.from_numpy(self.corpus.answer[rows])
        labels = torch.where(answer, self.to_draft[tokens], -1)[:, 1:]
        keep_cpu = (labels >= 0).nonzero(as_tuple=True)
        keep = tuple(self.to_device(k) for k in keep_cpu)
        picked, ids = self.to_device(labels[keep_cpu]), self.to_device(tokens)
        with self.autocast():
            hidden = self.read_net(F.embedding(ids, self.embedding).float())
        teacher = None
        if self.readings is not None:  # soft labels
            teacher = self.readings.of(rows.tolist(), ids)[1][:, :-1][keep]
        score, _, hit = objectives.row_scores(
            hidden[:, :-1][keep], self.head, picked, teacher, s.mix, self.chunk, self.scorer
        )
        return StepResult(-score.mean(), hit.float().mean(), len(picked))
