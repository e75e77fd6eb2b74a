"""The training loop: a budget of minutes or steps, any kind of drafter, and a stopped run goes on
from its checkpoint.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from ..errors import UserError, first_line
from . import checkpoint
from .average import WeightAverage
from .curve import write_curve
from .data import Corpus
from .progress import Update, progress_bar
from .settings import Settings
from .step_loss import StepLoss
from .stop import StopRequested, stop_requests

FIRST_RATE = 0.025  # of the peak, at the first step
LONGEST_WARMUP = 500  # steps; a share of a budget of tens of thousands would be most of a day


@dataclass
class Work:
    """What a run has done since it began or was resumed; evaluations count for no rate."""

    step: int
    seconds: float
    anchors: int
    began: float
    evaluating: float = 0.0

    def since(self, step: int, seconds: float, anchors: int) -> tuple[float, float]:
        """Anchors and steps a second from here to there."""
        worked = max(seconds - self.seconds - self.evaluating, 1e-9)
        return (anchors - self.anchors) / worked, (step - self.step) / worked


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
        self.net, self.settings, self.out = net, settings, out
        self.evaluate, self.extra = evaluate, extra or {}
        # steps from one call of ``write_out`` to the next, 0 = never
        self.keep_every = 0
        self.write_out: Callable[[], object] | None = None
        self.step_loss = StepLoss(target, net, corpus, settings, vocab_ids)
        self.device = self.step_loss.device
        self.optimizer = torch.optim.AdamW(
            [p for p in net.parameters() if p.requires_grad],
            lr=settings.lr,
            betas=(0.9, 0.95),
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.average = WeightAverage(net, settings.average) if settings.average else None
        if rope := getattr(net, "rope", None):
            rope.inverse = rope.inverse.to(self.device)  # else every step copies it over
        self.step, self.seconds, self.anchors_seen = 0, 0.0, 0
        self.curve: list[dict[str, Any]] = []
        self.evaluating = False  # whether an evaluation is under way
        # (loss, hit share) of steps not yet in the curve
        self.pending: list[tuple[torch.Tensor, torch.Tensor]] = []

    def progress(self) -> float:
        """Share of the budget that is used, 0 to 1."""
        return self.settings.progress(self.step, self.seconds)

    def learning_rate(self) -> float:
        """Learning rate now: linear warm-up, constant up to ``decay_from``, then a cosine down to
        ``floor``.
        """
        s, p = self.settings, self.progress()
        warmup = min(s.warmup, LONGEST_WARMUP / s.steps) if s.steps else s.warmup
        if p < warmup:
            return s.lr * max(p / warmup, FIRST_RATE)
        start = max(warmup, s.decay_from)
        gone = max(p - start, 0.0) / max(1 - start, 1e-9)
        return s.lr * (s.floor + (1 - s.floor) * 0.5 * (1 + math.cos(math.pi * gone)))

    # -- the checkpoint ----------------------------------------------------------------------------

    def save(self) -> None:
        """Write checkpoint and curve.

        Raises:
            UserError: the folder cannot be written, or the network holds what is no number; the
                last good checkpoint stays.
        """
        self._check_finite()
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
            average = self.average.values if self.average else None
            checkpoint.save(self.out, self.net, self.optimizer, state, average)
            write_curve(self.out, self.curve)
        except (OSError, SafetensorError) as error:
            why = getattr(error, "strerror", None) or first_line(error)
            raise UserError(
                f"The checkpoint could not be written to {self.out} ({why}); free some space or"
                " choose another --out."
            ) from None

    def resume(self, folder: Path) -> None:
        """Go on from ``folder``'s checkpoint; weights, optimizer, place in the data and curve come
        back as they were.
        """
        average = self.average.values if self.average else None
        state = checkpoint.load(folder, self.net, self.optimizer, average)
        stored = state["settings"]
        if (stored["kind"], stored["seed"]) != (self.settings.kind, self.settings.seed):
            raise UserError(
                f"The checkpoint in {folder} is of kind {stored['kind']!r}, seed"
                f" {stored['seed']}; resume it with those."
            )
        self.step, self.seconds = state["step"], state["seconds"]
        self.anchors_seen, self.curve = state["anchors"], state["curve"]
        self.pending = [
            (torch.tensor(loss, device=self.device), torch.tensor(hit, device=self.device))
            for loss, hit in state["pending"]
        ]

    # -- the run -----------------------------------------------------------------------------------

    def run(self, log_every: int = 20, show: bool = True) -> dict[str, Any]:
        """Train until the budget is used, or until Ctrl-C or SIGTERM, which let the step finish
        (but cut an evaluation short) and save; returns a summary.
        """
        s = self.settings
        work = Work(self.step, self.seconds, self.anchors_seen, time.perf_counter())
        saved = evaluated = self.seconds
        with (
            stop_requests(lambda: self.evaluating) as stop,
            progress_bar(f"train {s.kind}", 1.0, show) as update,
        ):
            while self.progress() < 1 and not stop:
                # 1) One optimizer step.
                self._train_step()
                self._read_clock(work)
                # 2) A point of the curve.
                if self.step % log_every == 0:
                    self._log(update, work)
                # 3) An evaluation, which takes its time from the budget.
                if self.evaluate and self.seconds - evaluated > 60 * s.eval_minutes:
                    work.evaluating += self._evaluate()
                    self._read_clock(work)
                    evaluated = self.seconds
                # 4) The drafter as it is, kept.
                if self.write_out and self.keep_every and self.step % self.keep_every == 0:
                    with self.finished_weights():
                        self.write_out()
                # 5) A checkpoint.
                if self.seconds - saved > 60 * s.save_minutes:
                    self.save()
                    saved = self.seconds
        summary = self._summary(work, bool(stop))
        self.save()
        return summary

    def finished_weights(self) -> AbstractContextManager[None]:
        """Inside, the network has the weights that are evaluated and written: their average, where
        the run keeps one.
        """
        return self.average.used() if self.average else nullcontext()

    def _train_step(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        result = self.step_loss(self.step, self.progress())
        result.loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        if self.average:
            self.average.update(self.step)
        self.anchors_seen += result.anchors
        self.pending.append((result.loss.detach(), result.hit_share))

    def _read_clock(self, work: Work) -> None:
        self.seconds = work.seconds + time.perf_counter() - work.began

    def _log(self, update: Update, work: Work) -> None:
        """One point of the curve from the steps since the last; the only place where the host waits
        for the device.
        """
        losses, hits = zip(*self.pending, strict=True)
        loss, first = float(torch.stack(losses).mean()), float(torch.stack(hits).nanmean())
        if not math.isfinite(loss):
            raise self._diverged()
        self.pending.clear()
        self.curve.append(
            {
                "step": self.step,
                "seconds": round(self.seconds, 1),
                "loss": round(loss, 5),
                "first": round(first, 4) if math.isfinite(first) else None,
            }
        )
        anchor_rate, _ = work.since(self.step, self.seconds, self.anchors_seen)
        update(self.progress(), f"step {self.step}, loss {loss:.3f}, {anchor_rate:.1f} anchors/s")

    def _check_finite(self) -> None:
        """Raises UserError: a loss since the last point of the curve, or a weight, is no number."""
        losses = [loss for loss, _ in self.pending]
        values = [*([torch.stack(losses)] if losses else []), *self.net.parameters()]
        if not all(bool(value.isfinite().all()) for value in values):
            raise self._diverged()

    def _diverged(self) -> UserError:
        kept = ""
        if (self.out / checkpoint.NAME).exists():
            kept = f" The last good checkpoint is kept in {self.out}."
        return UserError(
            f"The loss is no longer a finite number at step {self.step}; begin again with a lower"
            f" --lr and another --out.{kept}"
        )

    def _evaluate(self) -> float:
        """Add an evaluation to the curve; returns the seconds it took."""
        assert self.evaluate is not None
        self._check_finite()
        began = time.perf_counter()
        with suppress(StopRequested), self.finished_weights():
            try:
                self.evaluating = True
                self.curve.append(
                    {"step": self.step, "seconds": round(self.seconds, 1), **self.evaluate()}
                )
            finally:
                self.evaluating = False
        return time.perf_counter() - began

    def _summary(self, work: Work, stop: bool) -> dict[str, Any]:
        if self.step == work.step:
            # nothing was left to do but to write the drafter: the rate is that of the whole run
            work = Work(0, 0.0, 0, work.began, work.evaluating)
        anchor_rate, step_rate = work.since(self.step, self.seconds, self.anchors_seen)
        return {
            "stopped": stop and self.progress() < 1,
            "steps": self.step,
            "seconds": round(self.seconds, 1),
            "anchors": self.anchors_seen,
            "anchors_per_second": round(anchor_rate, 1),
            "steps_per_second": step_rate,
        }
