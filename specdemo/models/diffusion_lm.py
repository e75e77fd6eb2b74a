"""Stand-alone masked diffusion language models as drafters: networks with an embedding, a head and
a mask token of their own, which read the text's tokens and nothing of the target.

One network computes them all. What differs is data: who sees whom (everybody everybody, or blocks
of fixed positions their own and earlier ones), which row speaks about which position, the mask's
id. Dream, DiffuCoder and LLaDA see both ways; SDAR, Fast-dLLM v2 and BD3LM are block-causal; A2D
models are either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .block_drafter import MASK
from .decoder import CHUNK_ROWS, ROW_STEP, Attend, KVCache, whole_steps
from .layers import Rope, RopeTable
from .linear import Linear

MAX_MASKS = 256  # masks of one draft

# (x [n, H], cos, signed sin [n, 1, D], attend) -> [n, H]
LayerPass = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Attend], torch.Tensor]


@dataclass(frozen=True)
class DiffusionConfig:
    """What a diffusion language model computes, apart from its weights.

    Attributes:
        family: its name, for people.
        mask_token_id: the row of its own embedding that stands for a mask.
        shifted: row i speaks about position i + 1 (models made from autoregressive ones); else
            about its own position.
        block: positions of a block where the model is block-causal (block i reads block j if i >=
            j; blocks lie at fixed positions from 0 on); None where every row reads every other.
        random_order: its own sampler fills each mask with equal probability (MDLM), not the most
            confident ones first.
        context_window: the most positions it reads, masks included.
        vocab_size: rows of its embedding.
    """

    family: str
    mask_token_id: int
    shifted: bool
    block: int | None
    random_order: bool
    context_window: int
    vocab_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope_parameters: dict


@dataclass
class DiffusionCache:
    """A text as far as it is committed, and the keys and values of its finished blocks.

    Attributes:
        ids: the whole text. start: the position of the first token that is read.
        stored: K/V of the positions from ``start`` on that lie in finished blocks; nothing is ever
            stored where every row reads every other, as each then changes with each new token.
    """

    ids: list[int]
    start: int
    stored: KVCache


class DiffusionLM:
    """The network; see the module. It offers what :class:`.block_drafter.BlockDrafter` does, with
    :meth:`read` in place of ``extend``.

    Args:
        embed: ``ids [n] -> [n, H]``. layers: its layers. finish: the final norm, ``[n, H]`` to
            rows for ``head``.
        head: ``[rows, H]``, cut to the ids the target knows; head_bias: ``[rows]`` or None.
        banned: ``[k]`` ids below ``rows`` that are never proposed.
    """

    layer_ids: tuple[int, ...] = ()  # it reads nothing of the target
    reads_text = True
    vocab_ids: torch.Tensor | None = None  # its ids are the target's
    markov_tables = pair_head = None
    weights = "untrained weights"  # in words, for the page

    def __init__(
        self,
        config: DiffusionConfig,
        embed: Callable[[torch.Tensor], torch.Tensor],
        layers: Sequence[LayerPass],
        finish: Callable[[torch.Tensor], torch.Tensor],
        head: Linear,
        head_bias: torch.Tensor | None,
        rope: Rope,
        banned: torch.Tensor,
    ) -> None:
        self.config, self.embed, self.layers, self.finish = config, embed, layers, finish
        self.head, self.head_bias, self.banned = head, head_bias, banned
        self.rope_table = RopeTable(rope, head.device, head.dtype)
        # an anchor and its masks are a small part of what it reads
        self.most_masks = min(MAX_MASKS, config.context_window // 4)
        self.block_size = 1 + self.most_masks

    @property
    def rereads(self) -> str:
        """In words, what of the text a pass computes again."""
        if self.config.block is None:
            return "every pass reads the whole text again, as its attention goes both ways"
        return f"finished blocks of {self.config.block} tokens are cached"

    def new_cache(self, capacity: int) -> DiffusionCache:
        """An empty cache for ``capacity`` positions; it grows where a pass needs more."""
        c = self.config
        rows = min(capacity, c.context_window) + self.block_size if c.block else 0
        stored = KVCache(
            c.num_hidden_layers,
            c.num_key_value_heads,
            rows,
            c.head_dim,
            self.head.dtype,
            self.head.device,
        )
        return DiffusionCache([], 0, stored)

    def read(self, cache: DiffusionCache, ids: Sequence[int]) -> None:
        """The committed text is now ``ids``, which begins with what it was before; the network
        runs over it in the next pass.
        """
        cache.ids += ids[len(cache.ids) :]

    @torch.no_grad()
    def hidden(
        self, ids: torch.Tensor, anchor_position: int, cache: DiffusionCache
    ) -> torch.Tensor:
        """Fill ``B`` blocks of ``w`` slots behind the same text.

        Args:
            ids: ``[B, w]`` int64, the anchor in slot 0; :data:`.block_drafter.MASK` marks a mask.
            cache: holds the text before ``anchor_position``.

        Returns:
            ``[B, w, H]``, slot k for the token at ``anchor_position + k`` (slot 0 for nothing that
            is read).
        """
        batch, width = ids.shape
        self._slide(cache, anchor_position + width)
        at, block = anchor_position - cache.start, self.config.block
        whole = at // block * block if block else 0  # positions in finished blocks
        if batch > 1 or whole - cache.stored.length > CHUNK_ROWS:
            self._store(cache, whole)
        known = cache.stored.length
        text = cache.ids[cache.start + known : anchor_position]
        before = torch.tensor(text, dtype=torch.int64, device=ids.device).expand(batch, -1)
        rows = torch.cat([before, torch.where(ids == MASK, self.config.mask_token_id, ids)], 1)
        if block:  # a block is denoised whole, as it was trained
            missing = -(at + width) % block
            rows = F.pad(rows, (0, missing), value=self.config.mask_token_id)
        states = self._pass(rows, known, cache.stored)
        cache.stored.length = max(known, whole)
        first = at - known  # the anchor's row
        if self.config.shifted:
            states = torch.cat([states[:, :1], states[:, :-1]], 1)
        return self.finish(states[:, first : first + width])

    @torch.no_grad()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[..., H] -> [..., rows]``; −inf for the mask and for ids that mean something else to
        the target.
        """
        out = self.head(hidden.to(self.head.dtype))
        if self.head_bias is not None:
            out = out + self.head_bias
        out[..., self.banned] = float("-inf")
        return out

    def _slide(self, cache: DiffusionCache, end: int) -> None:
        """Leave out the front of a text of ``end`` positions, masks included, that is longer than
        what the model reads. Where finished blocks are cached half of it is left out at once, as
        the rest must be computed anew.
        """
        window, block = self.config.context_window, self.config.block
        if block is None:
            cache.start = max(0, end - window)
        elif -(-(end - cache.start) // block) * block > window:
            cache.start = -(-(end - window // 2) // block) * block
            cache.stored.length = 0

    def _store(self, cache: DiffusionCache, whole: int) -> None:
        """Keys and values of all finished blocks, in chunks."""
        stored, block = cache.stored, self.config.block or 1
        chunk = max(block, CHUNK_ROWS // block * block)
        while (n := min(chunk, whole - stored.length)) > 0:
            first = cache.start + stored.length
            rows = torch.tensor([cache.ids[first : first + n]], device=self.head.device)
            self._pass(rows, stored.length, stored)
            stored.length += n

    def _pass(self, ids: torch.Tensor, known: int, stored: KVCache) -> torch.Tensor:
        """States ``[B, n, H]`` of ``ids [B, n]`` behind ``known`` stored positions, before the
        final norm. One sequence of a block-causal model leaves its keys and values behind them.
        """
        batch, n = ids.shape
        c, count = self.config, ids.numel()
        padded = count if count <= ROW_STEP else whole_steps(count)
        x = self.embed(F.pad(ids.reshape(-1), (0, padded - count)))
        cos, sin = (t.repeat(batch, 1, 1) for t in self.rope_table.rows(known, n))
        cos, sin = (F.pad(t, (0, 0, 0, 0, 0, padded - count)) for t in (cos, sin))
        kv_heads, group = c.num_key_value_heads, c.num_attention_heads // c.num_key_value_heads
        seen = self._seen(known, n)
        mask = None if seen is None else seen.repeat(group, 1)
        if c.block and batch == 1:
            stored.reserve(known + n)

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            q = q.view(kv_heads, group, padded, -1)[:, :, :count].unflatten(2, (batch, n))
            q = q.permute(2, 0, 1, 3, 4).flatten(2, 3)  # [B, Hkv, G * n, D]
            k, v = (t[:, :count].unflatten(1, (batch, n)).transpose(0, 1) for t in (k, v))
            if c.block and batch == 1:
                keys, values = stored.write(layer, known, k[0], v[0])
                k, v = keys[None, :, : known + n], values[None, :, : known + n]
            elif known:
                past = (t[layer, None, :, :known] for t in (stored.keys, stored.values))
                k, v = (
                    torch.cat([t.expand(batch, -1, -1, -1), new], 2)
                    for t, new in zip(past, (k, v), strict=True)
                )
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            out = out.unflatten(2, (group, n)).permute(1, 2, 0, 3, 4).flatten(2, 3)
            return F.pad(out, (0, 0, 0, padded - count)).reshape(1, kv_heads, group * padded, -1)

        for layer in self.layers:
            x = layer(x, cos, sin, attend)
        return x[:count].view(batch, n, -1)

    def _seen(self, known: int, n: int) -> torch.Tensor | None:
        """Who reads whom: bool ``[n, known + n]``; None where everybody reads everybody."""
        block = self.config.block
        if block is None or n <= block:  # passes begin with a block
            return None
        number = torch.arange(known + n, device=self.head.device) // block
        return number[None] <= number[known:, None]
