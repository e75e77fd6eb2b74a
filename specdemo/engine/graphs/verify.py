"""One round of the target on the device: a pass over anchor and draft, the *match* rule, and the
cache moved together, without a decision of the host's.

Everything has fixed shapes and reads the place in the text from memory. Tensors of one element are
``[1]``, never of dimension 0: indexing with such a one would wait.
"""

from __future__ import annotations

import torch

from ...models.decoder import rms_norm
from ..noise import steps_of
from ..target import Target
from .attention import Attention, Rows
from .choose import Choice, Processing, choose
from .state import LaneState


class VerifyStep:
    """The round of one lane, for one width and one kind of processing.

    Args:
        taps: layers whose outputs are the drafter's features.
        attention: how rows attend to the cache.
    """

    def __init__(
        self,
        target: Target,
        state: LaneState,
        processing: Processing,
        attention: Attention,
        taps: tuple[int, ...] = (),
    ):
        self.target, self.state, self.processing = target, state, processing
        self.attention, self.taps = attention, taps
        self.steps = steps_of(target.vocab_size, target.device)
        self.rows = torch.arange(state.width, device=target.device)
        self.path_steps = torch.arange(state.longest, device=target.device)

    def __call__(self) -> None:
        """Read ``state.input``, leave the outcome in ``state``."""
        state = self.state
        # 1) Who is whose ancestor.
        tokens, path = state.input[:, 0].long(), state.input[:, 1:].long()
        on_path = path >= 0
        depth = on_path.sum(1) - 1
        tokens = torch.where(self.rows == 0, state.anchor, tokens)
        rows = Rows(state.length, path, on_path, depth, self.rows)
        # 2) The pass.
        logits, features = self._forward(tokens, rows)
        state.logits.copy_(logits)
        choice = choose(
            logits,
            self._seen(tokens, path, on_path),
            state.length + depth + 1,
            self.steps,
            state.numbers,
            self.processing,
        )
        # 3) Accept and commit.
        self._commit(tokens, rows, logits, features, choice)

    def _forward(self, tokens: torch.Tensor, rows: Rows) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Logits ``[W, V]`` and the outputs of the layers ``taps``."""
        t, cache = self.target, self.state.cache
        positions = rows.positions.clamp(max=t.max_positions - 1)
        cos, sin = t.cos[positions][:, None], t.sin[positions][:, None]
        slots = rows.slots
        attend_to = self.attention.of(rows, cache.capacity)

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = cache.keys[layer], cache.values[layer]
            keys.index_copy_(1, slots, k)
            values.index_copy_(1, slots, v)
            return attend_to(q, keys, values)

        x, outputs = t.embedding[tokens], {}
        for layer in t.layers:
            x = layer(x, cos, sin, attend)
            outputs[layer.index] = x
        logits = t.head(rms_norm(x, t.final_norm, t.shape.eps))
        return logits, [outputs[i] for i in self.taps]

    def _seen(
        self, tokens: torch.Tensor, path: torch.Tensor, on_path: torch.Tensor
    ) -> torch.Tensor:
        """``[W, V]`` bool: tokens of each row's own prefix."""
        vocab = self.target.vocab_size
        if not self.processing.penalty:
            return self.state.seen[None, :vocab]
        ids = torch.where(on_path, tokens[path.clamp(min=0)], vocab)
        return self.state.seen.repeat(len(tokens), 1).scatter_(1, ids, True)[:, :vocab]

    def _commit(
        self,
        tokens: torch.Tensor,
        rows: Rows,
        logits: torch.Tensor,
        features: list[torch.Tensor],
        choice: Choice,
    ) -> None:
        state, path, depth = self.state, rows.path, rows.depth
        # 1) A node is right if the row above it chose its token; kept if its whole path is.
        #    Children of one parent differ, so the kept ones form one path.
        above = path.gather(1, (depth - 1).clamp(min=0)[:, None])[:, 0]
        right = (choice.token[above] == tokens) | (self.rows == 0)
        right &= self.rows < state.input[:1, 0]
        kept = (right[path.clamp(min=0)] | ~rows.on_path).all(1)
        last = torch.where(kept, depth, -1).argmax()[None]
        accepted = depth[last]
        on_way = self.path_steps <= accepted
        # behind the end every row stands for itself, so that nothing moves
        way = torch.where(on_way, path[last][0], self.path_steps)
        # 2) Keys, values and features of the kept rows, in order.
        source, goal = state.length + way, state.length + self.path_steps
        for stored in (state.cache.keys, state.cache.values):
            stored.index_copy_(2, goal, stored.index_select(2, source))
        if features:
            state.features.copy_(torch.cat(features, -1)[way])
        # 3) The place in the text.
        chosen = choice.token[way]
        kept_ids = torch.where(on_way, chosen, self.target.vocab_size)
        state.seen.index_fill_(0, kept_ids, True)
        state.start.copy_(state.length)
        state.length.add_(accepted + 1)
        state.anchor.copy_(choice.token[last])
        # 4) What the host wants to know.
        total = logits.float().logsumexp(-1)
        own = logits.gather(1, choice.token[:, None])[:, 0].float() - total
        node = logits[above].gather(1, tokens[:, None])[:, 0].float() - total[above]
        parts = (accepted, chosen, way, choice.score[way], choice.gap[way], own[way], node)
        state.out[: state.outcome_size].copy_(torch.cat([part.double() for part in parts]))
