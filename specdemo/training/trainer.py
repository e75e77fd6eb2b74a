"""The training loop: a budget of minutes or steps, any drafter, any objective, and it goes on where
it was killed.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tqdm import tqdm

from ..errors import UserError
from ..models.kinds import DRAFTER_KINDS
from . import checkpoint, objectives
from .curve import write_curve
from .data import Batches, Corpus, blocks_of, choose_anchors
from .markov import follow_loss
from .packed import Taps, packed_blocks


@dataclass
class Settings:
    """Everything that shapes a run; kept in the checkpoint. ``minutes`` or ``steps`` is the budget
    (steps win).
    """

    kind: str = "block"
    minutes: float = 10.0
    steps: int = 0
    batch: int = 1  # sequences a step
    anchors: int = 48  # blocks a sequence
    lr: float = 6e-4
    warmup: float = 0.04  # share of the budget
    floor: float = 0.02  # last learning rate, as a share of lr
    weight_decay: float = 0.01
    clip: float = 1.0
    mix: float = 0.0  # 0 hard labels, 1 the target's distribution
    beta: float = 0.9  # variable prefix: Pr(l) ∝ beta^l
    gamma_d: float = 0.0  # decay of the position weights, 0 = by block size
    inverse_t: bool = False  # MDLM's 1/t
    surrogate: bool = True  # streak: the detached form
    # share of the budget after which the loss is the streak, below 0: by kind
    streak_from: float = -1.0
    exact_from: float = 0.5  # kind streak: from this share of the budget the exact form
    shares: tuple[float, float, float] | None = None
    # slots of a step's blocks, drawn from these; none = the drafter's block size
    lengths: tuple[int, ...] = ()
    save_minutes: float = 3.0
    eval_minutes: float = 5.0
    seed: int = 0
    chunk: int = 0  # rows of logits alive at once, 0 = by device
    compile: bool = False

    def progress(self, step: int, seconds: float) -> float:
        """Share of the budget used after so many steps and seconds, at most 1."""
        return min(step / self.steps if self.steps else seconds / (60 * self.minutes), 1.0)


class Halt(BaseException):
    """Somebody asked to stop while an evaluation, which changes nothing, was running."""


class Trainer:
    """Trains ``net`` in place.

    Args:
        target: HF causal LM, frozen, on its device. net: float32 drafter on the same device.
        corpus: training rows. settings: see there. out: folder for checkpoint and curve.
        vocab_ids: ``[Vd]`` target ids of the draft vocabulary, None = all.
        evaluate: called now and then, returns numbers for the curve (``tokens_per_round`` among
            them).
        extra: JSON that travels with the checkpoint.
    """

    def __init__(
        self,
        target: Any,
        net: Any,
        corpus: Corpus,
        settings: Settings,
        out: Path,
        vocab_ids: torch.Tensor | None = None,
        evaluate: Callable[[], dict] | None = None,
        extra: dict[str, Any] | None = None,
    ):
        self.extra = extra or {}
        self.target, self.net, self.corpus, self.settings, self.out, self.evaluate = (
            target,
            net,
            corpus,
            settings,
            out,
            evaluate,
        )
        self.embedding = target.get_input_embeddings().weight
        self.device = self.embedding.device
        head = target.get_output_embeddings().weight
        self.head = head if vocab_ids is None else head[vocab_ids.to(self.device)].contiguous()
        self.chunk = settings.chunk or objectives.chunk_rows(self.head)
        self.to_draft = torch.arange(head.shape[0])
        if vocab_ids is not None:
            self.to_draft = torch.full((head.shape[0],), -1).scatter_(
                0, vocab_ids.cpu(), torch.arange(len(vocab_ids))
            )
        self.batches = Batches(len(corpus), settings.batch, settings.seed)
        self.precision = torch.bfloat16 if head.dtype == torch.bfloat16 else None
        learning = [p for p in net.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            learning,
            lr=settings.lr,
            betas=(0.9, 0.95),
            weight_decay=settings.weight_decay,
            fused=self.device.type == "cuda",
        )
        net.rope.inverse = net.rope.inverse.to(self.device)  # else every step copies it over
        self.taps = (
            None
            if settings.kind == "ar" and settings.mix == 0
            else Taps(target, getattr(net, "layer_ids", ()))
        )
        self.blocks = torch.compile(packed_blocks) if settings.compile else packed_blocks
        self.step, self.seconds, self.anchors_seen, self.curve = 0, 0.0, 0, []
        self.looking = False  # whether an evaluation is under way
        # (loss, hit share) of steps not yet in the curve
        self.pending: list[tuple[torch.Tensor, torch.Tensor]] = []

    # -- one step ----------------------------------------------------------------------------------

    def length(self, generator: torch.Generator) -> int:
        """Slots of this step's blocks. Short ones cost less and are what most rounds ask for; slots
        see each other, so each length is practised.
        """
        choice = self.settings.lengths
        return (
            choice[int(torch.randint(len(choice), (), generator=generator))]
            if choice
            else self.net.block_size
        )

    def corrupt(
        self, blocks: int, B: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Masks and weights ``[blocks, B]`` of a mixture of the three kinds of blocks."""
        s = self.settings
        shares = torch.tensor(s.shares or DRAFTER_KINDS[s.kind].block_shares, dtype=torch.float64)
        which = torch.multinomial(shares, blocks, replacement=True, generator=generator)
        visible = torch.where(
            which == 1, objectives.visible_prefix(blocks, B, s.beta, generator), 0
        )
        masked, weight = (
            objectives.prefix_masks(visible, B),
            objectives.prefix_weights(visible, B, s.gamma_d or objectives.decay_for(B)),
        )
        noisy, t = objectives.random_masks(blocks, B, generator)
        some = (which == 2)[:, None]
        return torch.where(some, noisy, masked), torch.where(
            some, objectives.mdlm_weights(noisy, t, s.inverse_t), weight
        )

    def move(self, x: torch.Tensor) -> torch.Tensor:
        return (
            x.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else x
        )

    def block_loss(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss of one step and the share of right choices in first slots. All choices are made on
        the CPU, so the device never waits.
        """
        s, generator, rows = self.settings, self.batches.generator(step), self.batches.rows_at(step)
        B = self.length(generator)
        tokens = torch.from_numpy(self.corpus.tokens[rows].astype("int64"))
        answer = torch.from_numpy(self.corpus.answer[rows])
        anchors, valid = choose_anchors(answer, s.anchors, generator)
        truth, ours = blocks_of(tokens, answer, anchors, B)
        masked, weight = (x.view(truth.shape) for x in self.corrupt(anchors.numel(), B, generator))
        labels = torch.where(ours & valid[..., None], self.to_draft[truth], -1)
        weight = weight * (labels >= 0)
        streak = self.progress() >= (
            DRAFTER_KINDS[s.kind].streak_from if s.streak_from < 0 else s.streak_from
        )
        keep = (
            torch.ones_like(masked[..., 1:]).nonzero(as_tuple=True)
            if streak
            else (weight[..., 1:] > 0).nonzero(as_tuple=True)
        )
        if s.kind == "markov":
            # the first slot's block has seen the token before it
            keep = tuple(k[keep[2] > 0] for k in keep)
        keep, picked = tuple(self.move(k) for k in keep), self.move(labels[..., 1:][keep])
        ids, spots = self.move(tokens), self.move(anchors)
        features, last = self.taps.read(ids)
        with (
            torch.autocast(self.device.type, self.precision, enabled=self.precision is not None),
            torch.set_grad_enabled(s.kind != "markov"),
        ):
            hidden = self.blocks(
                self.net, self.embedding, features, self.move(truth), self.move(masked), spots
            )
        self.anchors_seen += int(valid.sum())
        if s.kind == "markov":
            return self.follow_loss(
                hidden[:, :, 1:][keep],
                ids[keep[0], spots[keep[0], keep[1]] + keep[2]],
                picked,
                self.move(weight[..., 1:])[keep],
            )
        exact = streak and (
            not s.surrogate or (s.kind == "streak" and self.progress() >= s.exact_from)
        )
        mix, teacher = 0.0 if exact else s.mix, None
        if mix > 0:  # the state that predicts the token at anchor + k stands one position earlier
            where = (spots[keep[0], keep[1]] + keep[2]).clamp(max=ids.shape[1] - 1)
            teacher = last[keep[0], where]
        score, sure, hit = objectives.row_scores(
            hidden[:, :, 1:][keep], self.head, picked, teacher, mix, self.chunk
        )
        firsts = (keep[2] == 0) & (picked >= 0)
        first = (hit & firsts).sum() / firsts.sum().clamp(min=1)
        if streak:
            alive, scored = (
                self.move(x[..., 1:].reshape(-1, B - 1)) for x in (labels >= 0, masked)
            )
            score, sure = score.view(-1, B - 1), sure.view(-1, B - 1)
            return (
                objectives.streak_loss(score, alive, scored)
                if exact
                else objectives.streak_loss(sure, alive, scored, score)
            ), first
        return (
            objectives.weighted_ce(score, self.move(weight[..., 1:][(weight[..., 1:] > 0)])),
            first,
        )

    def follow_loss(
        self, hidden: torch.Tensor, before: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The Markov head's loss and its share of right choices, see
        :func:`.follow.follow_loss`.
        """
        loss, hit = follow_loss(
            self.net, self.embedding, self.head, hidden.float(), before, labels, weight, self.chunk
        )
        return loss, hit.float().mean()

    def ar_loss(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Next-token loss over every answer token of the step's rows."""
        s, rows = self.settings, self.batches.rows_at(step)
        tokens, answer = (
            torch.from_numpy(self.corpus.tokens[rows].astype("int64")),
            torch.from_numpy(self.corpus.answer[rows]),
        )
        labels = torch.where(answer, self.to_draft[tokens], -1)[:, 1:]
        keep = (labels >= 0).nonzero(as_tuple=True)
        keep, picked, ids = (
            tuple(self.move(k) for k in keep),
            self.move(labels[keep]),
            self.move(tokens),
        )
        with torch.autocast(self.device.type, self.precision, enabled=self.precision is not None):
            hidden = self.net(F.embedding(ids, self.embedding).float())
        teacher = self.taps.read(ids)[1][:, :-1][keep] if s.mix > 0 else None
        score, _, hit = objectives.row_scores(
            hidden[:, :-1][keep], self.head, picked, teacher, s.mix, self.chunk
        )
        self.anchors_seen += len(picked)
        return -score.mean(), hit.float().mean()

    def progress(self) -> float:
        """Share of the budget that is used, 0 to 1."""
        return self.settings.progress(self.step, self.seconds)

    def rate(self) -> float:
        """Learning rate now: linear warm-up, then a cosine down to ``floor``."""
        s, p = self.settings, self.progress()
        if p < s.warmup:
            return s.lr * max(p, 1e-3) / s.warmup
        return s.lr * (
            s.floor
            + (1 - s.floor) * 0.5 * (1 + math.cos(math.pi * (p - s.warmup) / (1 - s.warmup)))
        )

    # -- the run -----------------------------------------------------------------------------------

    def save(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        state = {
            **self.extra,
            "step": self.step,
            "seconds": self.seconds,
            "anchors": self.anchors_seen,
            "curve": self.curve,
            "settings": asdict(self.settings),
            "pending": [[float(v) for v in pair] for pair in self.pending],
        }
        try:
            checkpoint.save(self.out, self.net, self.optimizer, state)
            write_curve(self.out, self.curve)
        except OSError as error:
            raise UserError(
                f"The checkpoint could not be written to {self.out} ({error.strerror}); free some"
                " space or choose another --out."
            ) from None

    def resume(self, folder: Path) -> None:
        """Go on from ``folder``'s checkpoint; weights, optimizer, place in the data and curve come
        back as they were.
        """
        state = checkpoint.load(folder, self.net, self.optimizer)
        if (state["settings"]["kind"], state["settings"]["seed"]) != (
            self.settings.kind,
            self.settings.seed,
        ):
            raise UserError(
                f"The checkpoint in {folder} is of kind {state['settings']['kind']!r}, seed"
                f" {state['settings']['seed']}; resume it with those."
            )
        self.step, self.seconds, self.anchors_seen, self.curve = (
            state["step"],
            state["seconds"],
            state["anchors"],
            state["curve"],
        )
        self.pending = [
            tuple(torch.tensor(v, device=self.device) for v in pair) for pair in state["pending"]
        ]

    def run(self, log_every: int = 20, show: bool = True) -> dict[str, Any]:
        """Train until the budget is used, or until Ctrl-C or SIGTERM, which let the step finish
        (but cut an evaluation short) and save; returns a summary.
        """
        s = self.settings
        loss_of = self.ar_loss if s.kind == "ar" else self.block_loss
        saved = evaluated = self.seconds
        began, begun_at, anchors_before, steps_before = (
            time.perf_counter(),
            self.seconds,
            self.anchors_seen,
            self.step,
        )
        spent = 0.0  # seconds inside evaluations, which the rate leaves out
        stop: list[int] = []

        def halt(number: int, _: Any) -> None:
            stop.append(number)
            if self.looking:
                raise Halt

        numbers = (
            (signal.SIGINT, signal.SIGTERM)
            if threading.current_thread() is threading.main_thread()
            else ()
        )
        handlers = {number: signal.signal(number, halt) for number in numbers}
        bar = tqdm(
            total=100,
            unit="%",
            desc=f"train {s.kind}",
            disable=not show,
            bar_format="{l_bar}{bar}| {elapsed} {postfix}",
        )
        try:
            while self.progress() < 1 and not stop:
                for group in self.optimizer.param_groups:
                    group["lr"] = self.rate()
                loss, hit = loss_of(self.step)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.net.parameters(), s.clip)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                self.step += 1
                self.seconds = begun_at + time.perf_counter() - began
                self.pending.append((loss.detach(), hit))
                if self.step % log_every == 0:
                    self._log(
                        bar,
                        (self.anchors_seen - anchors_before)
                        / max(self.seconds - begun_at - spent, 1e-9),
                    )
                if self.evaluate and self.seconds - evaluated > 60 * s.eval_minutes:
                    spent += self._look()
                    evaluated = self.seconds = begun_at + time.perf_counter() - began
                if self.seconds - saved > 60 * s.save_minutes:
                    self.save()
                    saved = self.seconds
        finally:
            bar.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        # nothing was left to do but to write the drafter: the rate is that of the run
        if self.step == steps_before:
            begun_at, anchors_before, steps_before = 0.0, 0, 0
        worked = max(self.seconds - begun_at - spent, 1e-9)
        pace, steps = (
            (self.anchors_seen - anchors_before) / worked,
            (self.step - steps_before) / worked,
        )
        self.save()
        return {
            "stopped": bool(stop) and self.progress() < 1,
            "steps": self.step,
            "seconds": round(self.seconds, 1),
            "anchors": self.anchors_seen,
            "anchors_per_second": round(pace, 1),
            "steps_per_second": steps,
        }

    def _log(self, bar: tqdm, pace: float) -> None:
        """One point of the curve from the steps since the last; the only place where the host waits
        for the device.
        """
        losses, hits = zip(*self.pending, strict=True)
        loss, first = float(torch.stack(losses).mean()), float(torch.stack(hits).nanmean())
        self.pending.clear()
        if not math.isfinite(loss):
            raise UserError(
                "The loss is no longer a number; resume from the last checkpoint with a lower --lr."
            )
        self.curve.append(
            {
                "step": self.step,
                "seconds": round(self.seconds, 1),
                "loss": round(loss, 5),
                "first": round(first, 4),
            }
        )
        bar.n = round(100 * self.progress(), 1)
        bar.set_postfix(step=self.step, loss=round(loss, 3), anchors_per_s=round(pace, 1))

    def _look(self) -> float:
        began = time.perf_counter()
        with suppress(Halt):
            try:
                self.looking = True
                self.curve.append(
                    {"step": self.step, "seconds": round(self.seconds, 1), **self.evaluate()}
                )
            finally:
                self.looking = False
        return time.perf_counter() - began
