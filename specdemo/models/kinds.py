"""The kinds of drafters: what each is for, how it is trained, and what it starts from.

Sources: DFlash (arXiv 2602.06036) for ``block``, DSpark (arXiv 2607.05147) for ``markov``, D²SD for
``vp``, MDLM for ``mdlm``, SpecDiff-2 (arXiv 2511.00606) for ``streak``.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Literal

from .language_model import is_language_model

KindName = Literal["block", "markov", "vp", "mdlm", "streak", "ar", "diffusion-lm"]
RoleName = Literal["block", "vp", "mdlm", "streak", "ar", "diffusion"]


@dataclass(frozen=True)
class DrafterKind:
    """One kind of drafter.

    Attributes:
        purpose: what the drafter does, as the end of a sentence that begins with “It”.
        block_shares: shares of training blocks with no visible token after the anchor, with a
            variable prefix, with random masks.
        streak_from: share of the training budget after which the loss is the streak; 1 = never.
        learning_rate: peak, from random weights or the target's layers.
        finetune_rate: peak, from a finished drafter.
        bundle_share: share of the minutes that ``training.bundle`` gives it; 0: none is trained.
        starts_from: kinds whose drafter it may start from in a bundle, the best first.
        role: the key under ``drafters:`` in models.yaml that its drafter is used as.
    """

    name: KindName
    purpose: str
    block_shares: tuple[float, float, float]
    streak_from: float
    learning_rate: float
    finetune_rate: float
    bundle_share: float
    starts_from: tuple[KindName, ...]
    role: RoleName


# in the order in which a bundle trains them
DRAFTER_KINDS: dict[str, DrafterKind] = {
    kind.name: kind
    for kind in (
        DrafterKind(
            name="block",
            purpose="fills all masks of a block in one pass, mostly from the anchor alone",
            block_shares=(0.7, 0.3, 0.0),
            # cross-entropy first teaches the tokens, the streak then favours long runs
            streak_from=0.75,
            learning_rate=6e-4,
            finetune_rate=3e-4,
            bundle_share=0.35,
            starts_from=(),
            role="block",
        ),
        DrafterKind(
            name="markov",
            purpose=(
                "fills all masks of a block in one pass, and makes them follow from one another"
                " with a Markov head trained on top of a block drafter"
            ),
            block_shares=(1.0, 0.0, 0.0),
            streak_from=1.0,
            learning_rate=1.5e-3,
            finetune_rate=1.5e-3,
            bundle_share=0.05,
            starts_from=("block",),
            role="block",
        ),
        DrafterKind(
            name="vp",
            purpose=(
                "fills blocks of which a prefix, or any part, is already known (variable prefixes,"
                " plain blocks and random masks mixed)"
            ),
            block_shares=(0.35, 0.45, 0.2),
            streak_from=0.75,
            learning_rate=6e-4,
            finetune_rate=3e-4,
            bundle_share=0.15,
            starts_from=("block",),
            role="vp",
        ),
        DrafterKind(
            name="mdlm",
            purpose="fills randomly masked blocks, as a masked diffusion language model does",
            block_shares=(0.3, 0.0, 0.7),
            # never, so that streak can be compared with it
            streak_from=1.0,
            learning_rate=6e-4,
            finetune_rate=3e-4,
            bundle_share=0.15,
            starts_from=("block",),
            role="mdlm",
        ),
        DrafterKind(
            name="streak",
            purpose="is tuned for long runs of right tokens (streak distillation)",
            block_shares=(1.0, 0.0, 0.0),
            streak_from=0.0,
            learning_rate=1e-4,
            finetune_rate=1e-4,
            bundle_share=0.15,
            starts_from=("mdlm", "block"),
            role="streak",
        ),
        DrafterKind(
            name="ar",
            purpose="writes one token after another, without the target's features",
            block_shares=(1.0, 0.0, 0.0),
            streak_from=1.0,
            learning_rate=6e-4,
            finetune_rate=3e-4,
            bundle_share=0.15,
            starts_from=(),
            role="ar",
        ),
        DrafterKind(
            name="diffusion-lm",
            purpose=(
                "is a masked diffusion language model of its own, which reads the text's tokens and"
                " nothing of the target"
            ),
            block_shares=(0.5, 0.0, 0.5),
            streak_from=1.0,
            learning_rate=3e-4,
            finetune_rate=1e-4,
            bundle_share=0.0,
            starts_from=(),
            role="diffusion",
        ),
    )
}

# the kinds that models.yaml may name under ``drafters:`` (a Markov head belongs to its block; a
# stand-alone diffusion language model is ``diffusion``). What kind of network one is follows from
# its files.
ROLES: tuple[str, ...] = tuple(dict.fromkeys(kind.role for kind in DRAFTER_KINDS.values()))

# where a pair names no drafter of a kind, which of its others do the same work, the best first
INSTEAD: dict[str, tuple[str, ...]] = {
    "block": ("diffusion", "vp", "mdlm", "streak"),
    "vp": ("block", "diffusion", "mdlm", "streak"),
    "mdlm": ("diffusion", "block", "vp", "streak"),
    "streak": ("diffusion", "block", "mdlm", "vp"),
    "diffusion": ("mdlm", "block", "vp", "streak"),
    "ar": (),
}


def role_for(kind: str, named: Container[str]) -> str | None:
    """The key under ``drafters:`` that a method asking for ``kind`` gets, of those ``named``."""
    return next((role for role in (kind, *INSTEAD[kind]) if role in named), None)


def is_autoregressive(config: dict[str, Any]) -> bool:
    """Whether a drafter folder's ``config.json`` describes the autoregressive kind: ours, or a
    language model of its own.
    """
    return config.get("model_type") == "specdemo_ar_drafter" or is_language_model(config)


# the ``model_type`` of the stand-alone diffusion language models that can draft
DIFFUSION_LMS = (
    *("Dream", "a2d-qwen2", "a2d-qwen3", "a2d-llama", "sdar", "Fast_dLLM_Qwen", "llada"),
    *("mdlm", "bd3lm"),
)


def is_diffusion_lm(config: dict[str, Any]) -> bool:
    """Whether a drafter folder's ``config.json`` describes a stand-alone diffusion language model
    (:data:`.diffusion_configs.FAMILIES`).
    """
    return config.get("model_type") in DIFFUSION_LMS


def stands_alone(config: dict[str, Any]) -> bool:
    """Whether a drafter folder's ``config.json`` describes a diffusion drafter that reads nothing
    of the target: a published one, or ours (:mod:`.text_drafter`).
    """
    return is_diffusion_lm(config) or config.get("context") == "text"
