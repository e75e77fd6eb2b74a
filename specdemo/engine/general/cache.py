"""Keys and values of a pass through transformers' own model, in slots of ours."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from transformers import Cache, DynamicLayer

from ...models.decoder import KVCache


class SlotLayer(DynamicLayer):
    """One layer's keys and values, ``[1, Hkv, capacity, D]`` each; made by the first pass, as only
    the model knows their shapes.
    """

    def __init__(self, owner: ModelCache):
        super().__init__()
        # no cycle: a race's memory is free as soon as its lanes are
        self._owner: ModelCache = weakref.proxy(owner)

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        capacity = self._owner.capacity
        self.keys = _slots(key_states, capacity)
        self.values = _slots(value_states, capacity)
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the pass's rows behind the committed slots; everything up to them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self._owner.length
        end = start + key_states.shape[-2]
        keys, values = self.pair
        keys[:, :, start:end] = key_states
        values[:, :, start:end] = value_states
        return keys[:, :, :end], values[:, :, :end]

    @property
    def pair(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values, once they are made."""
        assert self.keys is not None and self.values is not None
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._owner.length + query_length, 0

    def get_seq_length(self) -> int:
        return self._owner.length


def _slots(like: torch.Tensor, capacity: int) -> torch.Tensor:
    batch, heads, _, dim = like.shape
    return like.new_zeros(batch, heads, capacity, dim)


class ModelCache(KVCache):
    """Slots of one sequence for any model: layers may differ in heads and dimensions.

    Attributes:
        of_model: what the model's forward gets.
    """

    def __init__(self, layers: int, capacity: int):
        self.length, self._capacity = 0, capacity
        self.layers = [SlotLayer(self) for _ in range(layers)]
        self.of_model = Cache(layers=list(self.layers))

    @property
    def capacity(self) -> int:
        return self._capacity

    def stored(self) -> list[torch.Tensor]:
        made = [layer for layer in self.layers if layer.is_initialized]
        return [each for layer in made for each in layer.pair]

    def like(self, other: KVCache) -> None:
        """The layers that ``other`` has."""
        assert isinstance(other, ModelCache)
        for mine, theirs in zip(self.layers, other.layers, strict=True):
            if theirs.is_initialized and not mine.is_initialized:
                mine.lazy_initialization(*theirs.pair)
