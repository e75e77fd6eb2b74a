"""A block drafter that stands alone: it reads the text's tokens itself and nothing of the target's
hidden states, as SpecDiff's and DiffuSpec's drafters do.

One network does both: over committed text its rows see what stands before them, as in a causal
language model, and over a block all of its rows see each other and all of the text, as in block
diffusion (BD3LM, arXiv 2503.09573), whose blocks may begin anywhere here. Embedding and head are
the target's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .block_config import BlockDrafterConfig
from .block_drafter import MASK, BlockDrafter
from .decoder import CHUNK_ROWS, WindowCache
from .text_pass import text_pass


class TextCache(WindowCache):
    """Keys and values of the text, and ``unread``: committed tokens behind them that no pass has
    read yet.
    """

    def __init__(self, *shape: Any, window: int | None = None):
        super().__init__(*shape, window=window)
        self.unread: list[int] = []


class TextBlockDrafter(BlockDrafter):
    """See the module. :meth:`read` stands in place of ``extend``."""

    reads_text = True
    cache_class = TextCache

    def _add_context(self, config: BlockDrafterConfig) -> None:
        """Its own layers read the context."""

    def _bind_context(self) -> None:
        """Nothing of the target is projected."""

    def forward(self, *_: Any, **__: Any) -> Any:
        """Raises TypeError: transformers' DFlash contract hands over the target's states."""
        raise TypeError("this drafter reads tokens; use read and hidden, or training.packed")

    def read(self, cache: TextCache, ids: Sequence[int]) -> None:
        """The committed text is now ``ids``, which begins with what it was before and ends with
        the anchor; the network runs over it in the next pass.
        """
        cache.unread = list(ids[cache.end : -1])

    @torch.no_grad()
    def hidden(self, ids: torch.Tensor, anchor_position: int, cache: WindowCache) -> torch.Tensor:
        """Fill ``B`` blocks behind the same text, see :meth:`.BlockDrafter.hidden`. A few unread
        tokens go through the network together with the first block.

        Raises:
            ValueError: the text does not end at ``anchor_position``.
        """
        assert isinstance(cache, TextCache)
        if cache.end + len(cache.unread) != anchor_position:
            raise ValueError(
                f"{cache.end + len(cache.unread)} tokens were read, this block begins behind"
                f" {anchor_position}"
            )
        batch, width = ids.shape
        if batch > 1 or len(cache.unread) > self.block_size:
            self._store(cache)
        if batch > 1:
            return super().hidden(ids, anchor_position, cache)
        text = len(cache.unread)
        rows = torch.cat((ids.new_tensor(cache.unread), ids[0]))
        x = torch.where((rows == MASK)[:, None], self.mask_row, self.embed(rows.clamp(min=0)))
        states = text_pass(self, x, cache.end, cache, width)
        cache.unread = []
        return states[None, text:]

    def _store(self, cache: TextCache) -> None:
        """Read what is unread, in chunks, of more than the window only its last tokens."""
        unread = torch.tensor(cache.unread, dtype=torch.int64, device=self.embedding.device)
        position, rows = cache.clip(cache.end, unread)
        for chunk in rows.split(CHUNK_ROWS) if len(rows) else ():
            text_pass(self, self.embed(chunk), position, cache)
            position += len(chunk)
        cache.unread = []


def block_network(config: BlockDrafterConfig) -> type[BlockDrafter]:
    """The class of a block drafter of this config."""
    return TextBlockDrafter if config.context == "text" else BlockDrafter
