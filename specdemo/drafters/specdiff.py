"""SpecDiff: a masked diffusion model denoises γ masks in T steps, so a draft costs T passes, not γ
(arXiv 2408.05636).

A step fills masks as the drafter's own sampler does (:mod:`.parts.denoising`): MDLM, the paper's
drafter, each with probability (t − s) / t, every other the most confident ones. Difference from
the paper: the last step fills what is left, so T steps are T passes, not T + 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from ..errors import UserError
from ..totals import Rule
from .ar_draft import Params as SerialParams
from .ar_draft import SerialDrafter
from .parts.base import Context, Draft, Verdict
from .parts.candidates import Candidates, frame
from .parts.denoising import Reveal, masks_to_fill, own_reveal
from .parts.params import DEEPEST, Coupled, MethodParams, depth

if TYPE_CHECKING:
    from ..models.load import Loaded


class Params(MethodParams):
    gamma: int = depth(10, "γ: masks per block, the tokens drafted per round (paper: 10 to 20)")
    steps: int = Field(
        2,
        ge=1,
        le=DEEPEST,
        description="T: denoising steps per block; the masks are divided evenly among them"
        " (paper: 4 to 6)",
    )
    reveal: Reveal = Field(
        "auto",
        description="Masks filled in each step: the most confident, the leftmost, or each with"
        " probability (t − s) / t (MDLM's sampler); auto: as the drafter's own sampler does",
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
    coupled: Coupled = True

    def needs(self) -> dict[str, int]:
        return {"gamma": self.gamma}

    def check(self) -> None:
        if self.steps > self.gamma:
            raise UserError(
                f"steps ({self.steps}) must not be above gamma ({self.gamma}), as every step fills"
                " at least one mask; lower steps or raise gamma."
            )


def forbid(rule: Rule, params: Params) -> str | None:
    """Refuses the one q that is not exact; the tests enumerate all of them over a small
    vocabulary.
    """
    if (
        rule == "ratio"
        and params.q == "reveal"
        and params.reveal != "left-to-right"
        and params.steps > 1
    ):
        return (
            "SpecDiff cannot use the rule “ratio” with q = reveal when the most confident masks, or"
            " random ones, are filled first (a token may be filled before one that precedes it, and"
            " then q is not its distribution given the accepted prefix); choose q = final or reveal"
            " = left-to-right."
        )
    return None


class SpecDiff:
    """T passes over one block; the tokens that a step fills in stay and condition the next."""

    def __init__(self, loaded: Loaded, params: Params) -> None:
        from .parts.block_context import open_context

        self.network = open_context(loaded, "mdlm")
        self.vocab_size = loaded.model.config.vocab_size
        params = self.network.fit(params)
        if params.reveal == "auto":
            params = params.model_copy(update={"reveal": own_reveal(self.network)})
        self.params = params
        self.layer_ids, self.weights = self.network.layer_ids, self.network.weights
        self.warmup: SerialDrafter | None = None
        if params.warmup:
            serial = SerialParams(gamma=min(5, params.gamma))
            self.warmup = SerialDrafter(loaded, serial, shared=self.network)
            self.weights += f"; first {params.warmup} tokens: {self.warmup.weights}"

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        if self.warmup is not None:
            self.warmup.start(prompt_ids, capacity)
        self.network.start(capacity)

    def propose(self, context: Context) -> Draft:
        written = len(context.ids) - context.prompt_length
        if self.warmup is not None and written < self.params.warmup:
            return self.warmup.propose(context)
        return self._denoise(context, min(self.params.gamma, context.budget))

    def observe(self, verdict: Verdict) -> None:
        pass

    def _denoise(self, context: Context, gamma: int) -> Draft:
        import torch

        from .parts.block_context import MASK
        from .parts.proposal import choose_columns, one_hot, proposal_probs, widen

        network, p, vocab_ids = self.network, self.params, self.network.vocab_ids
        ratio, steps = context.rule == "ratio", min(p.steps, gamma)
        network.catch_up(context)
        block = [context.ids[-1]] + [MASK] * gamma
        table: list[Candidates] = [[] for _ in range(gamma)]
        probs = [0.0] * gamma
        q: list[Any] = [None] * gamma
        frames = []
        changed = True
        for step in range(steps):
            # 1) one pass: a token for every mask
            masked = [i for i in range(gamma) if block[i + 1] == MASK]
            if not masked:
                break
            positions = [len(context.ids) + i for i in masked]
            if changed:  # else it would say the same
                hidden = network.hidden([block], len(context.ids) - 1)[0, 1:]
                logits = network.scores(hidden[masked], context, positions)
            columns = choose_columns(logits, context if ratio else None)
            rows = network.top_candidates(logits)
            ids = (columns if vocab_ids is None else vocab_ids[columns]).tolist()
            taken = logits.log_softmax(-1).gather(1, columns[:, None])[:, 0].exp().tolist()
            # 2) which masks this step fills
            sure = [row[0][1] for row in rows]
            filled = masks_to_fill(
                network, p.reveal, positions, sure, step, steps, context.generator
            )
            changed = bool(filled)
            # 3) fill them; q is 1 for a token filled before the step whose q counts
            exact = len(filled) == len(masked) or p.q == "reveal"
            spread = proposal_probs(logits, context.temperature, columns) if ratio else None
            for m, i in enumerate(masked):
                table[i] = rows[m]
                if m not in filled:
                    continue
                block[i + 1], probs[i] = ids[m], taken[m]
                if spread is not None:
                    q[i] = spread[m] if exact else one_hot(columns[m : m + 1], logits[:1])[0]
            if context.record:
                guess = dict(zip(masked, ids, strict=True))
                frames.append(
                    frame(
                        table,
                        [guess.get(i, block[i + 1]) for i in range(gamma)],
                        [t == MASK for t in block[1:]],
                        label=f"step {step + 1} of {steps}",
                        step=step,
                        steps=steps,
                    )
                )
        draft = Draft.chain(block[1:], probs, "block", frames=frames)
        if ratio:
            draft.q = widen(torch.stack(q), vocab_ids, self.vocab_size)
        return draft
