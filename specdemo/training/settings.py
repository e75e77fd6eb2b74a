"""What shapes a training run; kept in its checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

LossName = Literal["weighted", "per-block", "nelbo"]
LOSSES: tuple[LossName, ...] = get_args(LossName)


@dataclass
class Settings:
    """Everything that shapes a run. ``minutes`` or ``steps`` is the budget (steps win)."""

    kind: str = "block"
    minutes: float = 10.0
    steps: int = 0
    batch: int = 1  # sequences a step
    anchors: int = 48  # blocks a sequence
    lr: float = 6e-4
    warmup: float = 0.04  # share of the budget
    # share of the budget from which the learning rate falls; before, it is constant
    decay_from: float = 0.0
    floor: float = 0.02  # last learning rate, as a share of lr
    average: float = 0.0  # decay of the weights' moving average, 0 = none
    weight_decay: float = 0.01
    clip: float = 1.0
    mix: float = 0.0  # 0 hard labels, 1 the target's distribution
    # shares of blocks with the anchor alone, a variable prefix, random masks; none = by kind
    shares: tuple[float, ...] = ()
    loss: LossName = "weighted"  # how the slots' cross-entropies are averaged
    beta: float = 0.9  # variable prefix: Pr(l) ∝ beta^l
    gamma_d: float = 0.0  # decay of the position weights, 0 = by block size
    inverse_t: bool = False  # MDLM's 1/t, cut at 8
    # share of the budget after which the loss is the streak, below 0: by kind
    streak_from: float = -1.0
    exact_from: float = 0.5  # kind streak: from this share of the budget the exact form
    # slots of a step's blocks, drawn from these; none = the drafter's block size
    lengths: tuple[int, ...] = ()
    reuse: int = 1  # how often a row is used each time the target reads it
    keep: float = 0.0  # gigabytes (10⁹ bytes) of the target's features kept for that
    save_minutes: float = 3.0
    eval_minutes: float = 5.0
    seed: int = 0
    compile: bool = False

    @classmethod
    def from_checkpoint(cls, stored: dict[str, Any]) -> Settings:
        """Settings as a checkpoint keeps them: JSON, and of earlier versions, which had fields
        that no command could set and lacked others.
        """
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in stored.items() if name in known}
        lists = {name: tuple(stored.get(name) or ()) for name in ("lengths", "shares")}
        return cls(**{**values, **lists})

    def progress(self, step: int, seconds: float) -> float:
        """Share of the budget used after so many steps and seconds, at most 1."""
        return min(step / self.steps if self.steps else seconds / (60 * self.minutes), 1.0)
