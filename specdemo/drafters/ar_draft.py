"""Speculative decoding with an autoregressive drafter: γ tokens one after the other, one drafter
pass each (Leviathan, Kalman, Matias, arXiv 2211.17192, algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .parts.base import Context, Draft, Verdict
from .parts.candidates import frame
from .parts.params import Coupled, MethodParams, depth

if TYPE_CHECKING:
    import torch

    from ..models.load import Loaded
    from .parts.block_context import BlockContext


class Params(MethodParams):
    gamma: int = depth(5, "γ: tokens drafted per round, one drafter pass each")
    coupled: Coupled = True

    def needs(self) -> dict[str, int]:
        return {"gamma": self.gamma}


Step = Callable[["torch.Tensor | None", int], "torch.Tensor"]


class SerialDrafter:
    """γ serial passes of the pair's autoregressive drafter, or, where it has none, of a block
    drafter that fills one mask a pass.

    With the *ratio* rule each token is sampled at the target's temperature and its full
    distribution q is part of the draft; else it is the argmax. Tokens stay on the device until the
    last pass: one host sync a round.
    """

    def __init__(self, loaded: Loaded, params: Params, shared: BlockContext | None = None) -> None:
        """``shared``: a context to use instead of opening one of the pair's block drafter."""
        from .parts.block_context import load_network, open_context

        self.device, self.vocab_size = loaded.device, loaded.model.config.vocab_size
        self.block = None if "ar" in loaded.pair.drafters else shared or open_context(loaded)
        self.borrowed = self.block is not None
        self.layer_ids: tuple[int, ...]
        if self.block is None:
            self.net = load_network(loaded, "ar")
            self.layer_ids, self.weights = (), self.net.weights
        else:
            params = self.block.fit(params)
            self.net, self.layer_ids = self.block.net, self.block.layer_ids
            self.weights = (
                f"{self.net.weights}, run one token at a time (the pair has no autoregressive"
                " drafter)"
            )
        self.params = params

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        self.cached: list[int] = []  # tokens in the autoregressive drafter's cache
        if self.block is not None:
            self.block.start(capacity)
        else:
            self.cache = self.net.new_cache(capacity)

    def propose(self, context: Context) -> Draft:
        import torch

        from .parts.block_context import top_candidates
        from .parts.proposal import choose_columns, proposal_probs, widen

        count = min(self.params.gamma, context.budget)
        ratio, vocab_ids = context.rule == "ratio", self.net.vocab_ids
        step = (
            self._network_step(context) if self.block is None else self._block_step(context, count)
        )
        # 1) γ passes, each on the token of the one before
        steps, chosen, token = [], [], None
        for k in range(count):
            logits = step(token, k)
            if context.couple is not None:
                logits = context.couple(logits[None], [len(context.ids) + k], vocab_ids)[0]
            steps.append(logits)
            column = choose_columns(steps[-1], context if ratio else None)
            chosen.append(column)
            # a bare number as index would wait for the device
            token = column if vocab_ids is None else vocab_ids[column[None]][0]
        if self.block is None:
            # drafted tokens in the cache are rolled back at the next round
            self.cached = list(context.ids)
        # 2) everything to the host
        logits, columns = torch.stack(steps), torch.stack(chosen)
        table = top_candidates(logits, vocab_ids)
        ids = (columns if vocab_ids is None else vocab_ids[columns]).tolist()
        probs = logits.log_softmax(-1).gather(1, columns[:, None])[:, 0].exp().tolist()
        draft = Draft.chain(ids, probs, "ar")
        if ratio:
            q = proposal_probs(logits, context.temperature, columns)
            draft.q = widen(q, vocab_ids, self.vocab_size)
        if context.record:
            draft.frames = [
                frame(table[: k + 1], ids[: k + 1], label=f"pass {k + 1}", step=k, steps=count)
                for k in range(count)
            ]
        return draft

    def observe(self, verdict: Verdict) -> None:
        pass

    def _network_step(self, context: Context) -> Step:
        """Passes of the autoregressive drafter: (token before, k) to logits ``[Vd]``."""
        import torch

        from .parts.block_context import remark_window

        remark_window(self.net, context)
        keep = 0
        # the text only grows, so this ends at once unless a new run began
        for keep in range(len(self.cached), -1, -1):
            if self.cached[:keep] == context.ids[:keep]:
                break
        keep = min(keep, len(context.ids) - 1)
        self.cache.rollback(keep)

        def step(token: torch.Tensor | None, k: int) -> torch.Tensor:
            new = (
                torch.tensor(context.ids[keep:], device=self.device)
                if token is None
                else token[None]
            )
            position = keep if token is None else len(context.ids) - 1 + k
            return self.net.step(new, position, self.cache, last_only=True)[0].float()

        return step

    def _block_step(self, context: Context, count: int) -> Step:
        """The same of a block drafter, over the anchor, the tokens so far and ``count`` masks."""
        import torch

        from .parts.block_context import MASK

        block = self.block
        assert block is not None
        block.catch_up(context)
        blocks = torch.tensor([[context.ids[-1]] + [MASK] * count], device=self.device)

        def step(token: torch.Tensor | None, k: int) -> torch.Tensor:
            if token is not None:
                blocks[0, k] = token
            return block.logits(block.hidden(blocks, len(context.ids) - 1)[0, k + 1])

        return step
