"""Classic speculative decoding: a small drafter writes γ tokens one after the other, γ passes a
round (arXiv 2211.17192).
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from .parts.base import Context, Draft, Verdict
from .parts.candidates import frame
from .parts.params import MethodParams


class Params(MethodParams):
    gamma: int = Field(
        5, ge=1, le=15, description="Tokens drafted per round, one drafter pass each, γ"
    )


class SerialDrafter:
    """γ serial passes of the pair's small autoregressive network, or, where it has none, of a block
    network that fills one mask a pass.

    With the *ratio* rule each token is sampled at the target's temperature and its full
    distribution handed over; else the best is taken.
    Tokens stay on the device until the last pass: one host sync a round.
    """

    def __init__(self, loaded: Any, params: Params, shared: Any = None) -> None:
        """``shared``: a Session to run serially instead of loading another block network."""
        from .parts.block_context import load_network, session

        self.device, self.vocab_size = loaded.device, loaded.model.config.vocab_size
        self.block = None if "ar" in loaded.pair.drafters else shared or session(loaded)
        if self.block is None:
            self.net = load_network(loaded, "ar")
            self.layer_ids, self.weights = (), self.net.weights
        else:
            params = self.block.fit(params)
            self.net, self.layer_ids = self.block.net, self.block.layer_ids
            self.weights = (
                f"{self.net.weights}, run one token at a time (no autoregressive drafter trained"
                " yet)"
            )
        self.params = params

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        self.read: list[int] = []  # what the autoregressive network's cache holds
        if self.block is not None:
            self.block.start(capacity)
        else:
            self.cache = self.net.new_cache(capacity)

    def propose(self, context: Context) -> Draft:
        import torch

        from .parts.block_context import law, pick, rows, widen

        count = min(self.params.gamma, context.budget)
        ratio = context.rule == "ratio"
        step = (
            self._serial_block(context, count)
            if self.block is not None
            else self._serial_network(context)
        )
        logits, columns = [], []
        token = None
        for k in range(count):
            logits.append(step(token, k))
            column = pick(logits[-1], context if ratio else None)
            columns.append(column)
            # a bare number as index would wait for the device
            token = column if self.net.vocab_ids is None else self.net.vocab_ids[column[None]][0]
        if self.block is None:
            # drafted tokens in the cache are rolled back at the next round
            self.read = list(context.ids)
        logits, columns = torch.stack(logits), torch.stack(columns)
        table = rows(logits, self.net.vocab_ids)
        ids = (columns if self.net.vocab_ids is None else self.net.vocab_ids[columns]).tolist()
        probs = logits.log_softmax(-1).gather(1, columns[:, None])[:, 0].exp().tolist()
        draft = Draft.chain(ids, probs, "ar")
        if ratio:
            draft.q = widen(
                law(logits, context.temperature, columns), self.net.vocab_ids, self.vocab_size
            )
        if context.record:
            draft.frames = [
                frame(table[: k + 1], ids[: k + 1], label=f"pass {k + 1}", step=k, steps=count)
                for k in range(count)
            ]
        return draft

    def observe(self, verdict: Verdict) -> None:
        pass

    def _serial_network(self, context: Context):
        import torch

        keep = 0
        # the text only grows, so this ends at once unless a new run began
        for keep in range(len(self.read), -1, -1):
            if self.read[:keep] == context.ids[:keep]:
                break
        keep = min(keep, len(context.ids) - 1)
        self.cache.length = keep

        def step(token: torch.Tensor | None, k: int) -> torch.Tensor:
            new = (
                torch.tensor(context.ids[keep:], device=self.device)
                if token is None
                else token[None]
            )
            return self.net.step(new, self.cache.length, self.cache)[-1].float()

        return step

    def _serial_block(self, context: Context, count: int):
        import torch

        from .parts.block_context import MASK

        self.block.catch_up(context)
        blocks = torch.tensor([[context.ids[-1]] + [MASK] * count], device=self.device)

        def step(token: torch.Tensor | None, k: int) -> torch.Tensor:
            if token is not None:
                blocks[0, k] = token
            return self.block.logits(self.block.hidden(blocks, len(context.ids) - 1)[0, k + 1])

        return step
