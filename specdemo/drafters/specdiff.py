"""SpecDiff: a masked diffusion model denoises γ masks in T steps; steps, not tokens, are what a
draft costs (arXiv 2408.05636).
"""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from ..errors import UserError
from .ar_draft import Params as SerialParams
from .ar_draft import SerialDrafter
from .parts.base import Context, Draft, Verdict
from .parts.candidates import frame
from .parts.params import MethodParams


class Params(MethodParams):
    gamma: int = Field(
        10, ge=1, le=15, description="Masks per block, the tokens drafted per round, γ"
    )
    steps: int = Field(
        2,
        ge=1,
        le=15,
        description="Denoising steps per block, T; the masks are divided evenly among them",
    )
    reveal: Literal["confidence", "left-to-right"] = Field(
        "confidence", description="Masks filled in each step: the most confident, or the leftmost"
    )
    q: Literal["final", "reveal"] = Field(
        "final",
        description="Ratio rule only: q from the last step (1 for tokens filled before), or from"
        " the step that filled the token",
    )
    warmup: int = Field(
        0,
        ge=0,
        le=512,
        description="First output tokens drafted autoregressively instead (paper: 100, with an"
        " untrained drafter)",
    )

    def check(self) -> None:
        if self.steps > self.gamma:
            raise UserError(
                f"steps ({self.steps}) must not be above gamma ({self.gamma}), as every step fills"
                " at least one mask; lower steps or raise gamma."
            )


def forbid(rule: str, params: Params) -> str | None:
    """Which q is exact: reference enumeration over a small vocabulary, repeated in the tests."""
    if (
        rule == "ratio"
        and params.q == "reveal"
        and params.reveal == "confidence"
        and params.steps > 1
    ):
        return (
            "SpecDiff cannot use the rule “ratio” with q = reveal when the surest masks are filled"
            " first (a later token fixed before an earlier one changes what q means, and the text's"
            " law with it); choose q = final or reveal = left-to-right."
        )
    return None


class SpecDiff:
    """T passes over one block; what a step reveals stays and is seen by the next."""

    def __init__(self, loaded: Any, params: Params) -> None:
        from .parts.block_context import session

        self.session, self.vocab_size = session(loaded, "mdlm"), loaded.model.config.vocab_size
        self.params = params = self.session.fit(params)
        self.layer_ids, self.weights = self.session.layer_ids, self.session.weights
        self.warm = None
        if params.warmup:
            self.warm = SerialDrafter(
                loaded, SerialParams(gamma=min(5, params.gamma)), shared=self.session
            )
            self.weights += f"; first {params.warmup} tokens: {self.warm.weights}"

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        if self.warm is not None:
            self.warm.start(prompt_ids, capacity)
        self.session.start(capacity)

    def propose(self, context: Context) -> Draft:
        if self.warm is not None and len(context.ids) - context.prompt_length < self.params.warmup:
            return self.warm.propose(context)
        return self._denoise(context, min(self.params.gamma, context.budget))

    def observe(self, verdict: Verdict) -> None:
        pass

    def _denoise(self, context: Context, gamma: int) -> Draft:
        import torch

        from .parts.block_context import MASK, law, one_hot, pick, widen

        net, p = self.session, self.params
        ratio, steps = context.rule == "ratio", min(p.steps, gamma)
        net.catch_up(context)
        block, table, probs, frames = (
            [context.ids[-1]] + [MASK] * gamma,
            [[] for _ in range(gamma)],
            [0.0] * gamma,
            [],
        )
        q: list[Any] = [None] * gamma
        for step in range(steps):
            masked = [i for i in range(gamma) if block[i + 1] == MASK]
            logits = net.logits(net.hidden([block], len(context.ids) - 1)[0, 1:][masked])
            columns = pick(logits, context if ratio else None)
            rows = net.rows(logits)
            ids = (columns if net.net.vocab_ids is None else net.net.vocab_ids[columns]).tolist()
            taken = logits.log_softmax(-1).gather(1, columns[:, None])[:, 0].exp().tolist()
            count = math.ceil(len(masked) / (steps - step))
            order = (
                range(len(masked))
                if p.reveal == "left-to-right"
                else sorted(range(len(masked)), key=lambda m: -rows[m][0][1])
            )
            last = step == steps - 1
            now = set(list(order)[:count])
            spread = law(logits, context.temperature, columns) if ratio else None
            shown = dict(zip(masked, ids, strict=True))
            for m, i in enumerate(masked):
                table[i] = rows[m]
                if m not in now:
                    continue
                block[i + 1], probs[i] = ids[m], taken[m]
                if ratio:
                    q[i] = (
                        spread[m]
                        if last or p.q == "reveal"
                        else one_hot(columns[m : m + 1], logits[:1])[0]
                    )
            if context.record:
                guess = [shown.get(i, block[i + 1]) for i in range(gamma)]
                frames.append(
                    frame(
                        table,
                        guess,
                        [t == MASK for t in block[1:]],
                        label=f"step {step + 1} of {steps}",
                        step=step,
                        steps=steps,
                    )
                )
        draft = Draft.chain(block[1:], probs, "block", frames=frames)
        if ratio:
            draft.q = widen(torch.stack(q), net.net.vocab_ids, self.vocab_size)
        return draft
