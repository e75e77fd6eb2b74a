"""A target whose passes run through transformers' own model."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from ...errors import UserError
from ...models.compiled import PassKind
from ...models.decoder import KVCache, whole_steps
from ..attention import AttentionKind
from ..target import BUCKETS, TreePasses, bucket, chunks
from .attention import NAME, RUNNING, Pass, Watch
from .cache import ModelCache
from .products import use_row_products

# model types whose window is in the library's cache alone and not in their masks
WINDOW_IN_CACHE = ("moshi",)
# fields of a config that say which code attends and runs experts, as a pass of ours needs them
SWITCHES = {"_attn_implementation_internal": NAME, "_experts_implementation_internal": "eager"}


class GeneralTarget(TreePasses):
    """Any causal language model of transformers whose attention and masks go through the library's
    interfaces, with the methods of :class:`..target.Target`.

    Attributes:
        layers: the decoder layers, whose outputs are what taps mean.

    Raises:
        UserError: it attends by code of its own, or takes no positions.
    """

    pass_kind: PassKind = "eager"

    def __init__(self, model: PreTrainedModel):
        refuse_other_code(model)
        self.model: Any = model
        self.config: Any = model.config.get_text_config()
        self.dtype = model.dtype
        self.dtype_name = str(model.dtype).removeprefix("torch.")
        self._names = inspect.signature(model.forward).parameters
        self.layers = _layers(model, self.config)
        embedding: Any = model.get_input_embeddings()
        head: Any = model.get_output_embeddings()
        if embedding is None or head is None:
            raise UserError(f"{_type(model)} has no head over tokens; choose another target.")
        self.embedding: torch.Tensor = embedding.weight.detach()
        self.device = self.embedding.device  # of a model that is spread, the first
        self.head_weight: torch.Tensor = head.weight.detach()
        self.vocab_size = self.head_weight.shape[0]
        self.max_positions = max_positions(self.config)
        configs = [getattr(module, "config", None) for module in model.modules()]
        self._configs: list[Any] = list({id(c): c for c in configs if c is not None}.values())

    def use_row_products(self) -> None:
        """From now on the model multiplies by our products."""
        use_row_products(self.model)

    def new_cache(self, slots: int) -> ModelCache:
        """An empty cache whose capacity is the next bucket."""
        return ModelCache(len(self.layers), bucket(slots))

    def prefill(
        self, cache: KVCache, ids: list[int], taps: tuple[int, ...] = ()
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As :meth:`..target.Target.prefill`."""
        tapped = []
        for chunk in chunks(ids, cache.length):
            logits, features = self._read(cache, chunk, taps)
            tapped.append(features)
        return logits, torch.cat(tapped) if taps else None

    def _read(
        self, cache: KVCache, ids: list[int], taps: tuple[int, ...]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        n = len(ids)
        rows = min(whole_steps(n), cache.capacity - cache.length)
        seen = torch.ones(rows, rows, dtype=torch.bool).tril_()
        positions = torch.arange(cache.length, cache.length + rows)
        logits, features = self.run(
            cache, ids + ids[-1:] * (rows - n), positions, seen, taps, "masked", last=n - 1
        )
        cache.length += n
        return logits, logits[:0] if features is None else features[:n]

    def run(
        self,
        cache: KVCache,
        ids: list[int],
        positions: torch.Tensor,
        seen: torch.Tensor,
        taps: tuple[int, ...] = (),
        attention: AttentionKind = "layout_invariant",
        last: int | None = None,
        watch: Watch | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See :class:`..target.TreePasses`.

        Args:
            last: the logits ``[1, V]`` of that row alone are wanted.
            watch: see :class:`.attention.Pass`.
        """
        assert isinstance(cache, ModelCache)
        positions = positions.clamp(max=self.max_positions - 1).to(self.device)
        running = Pass(seen.to(self.device), cache.length, positions, attention, watch)
        given: dict[str, Any] = {
            "input_ids": torch.tensor([ids], device=self.device),
            "position_ids": positions[None],
            "use_cache": True,
            "cache" if "cache" in self._names else "past_key_values": cache.of_model,
        }
        if last is not None and "logits_to_keep" in self._names:
            given["logits_to_keep"] = torch.tensor([last], device=self.device)
        with self._ours(running), _tapped(self.layers, taps) as outputs:
            logits = self.model(**given).logits[0]
        if not running.calls:
            raise UserError(_OWN_CODE.format(_type(self.model)))
        if last is not None and len(logits) > 1:
            logits = logits[last : last + 1]
        features = [outputs[i].to(self.device) for i in taps]
        return logits, torch.cat(features, -1) if taps else None

    @contextmanager
    def _ours(self, running: Pass) -> Iterator[None]:
        """The model attends with our attention and reads experts one by one."""
        before = [{name: getattr(config, name) for name in SWITCHES} for config in self._configs]
        token = RUNNING.set(running)
        try:
            for config in self._configs:
                vars(config).update(SWITCHES)
            yield
        finally:
            RUNNING.reset(token)
            for config, values in zip(self._configs, before, strict=True):
                vars(config).update(values)


_OWN_CODE = (
    "Targets of type “{}” attend by code of their own, which cannot verify a tree of drafts; choose"
    " another target."
)


def refuse_other_code(model: PreTrainedModel) -> None:
    """Refuse a model that the general step cannot reach into, as far as its class says.

    Raises:
        UserError: it attends by code of its own, or takes no positions.
    """
    if _type(model) in WINDOW_IN_CACHE or not type(model)._can_set_attn_implementation():
        raise UserError(_OWN_CODE.format(_type(model)))
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise UserError(
            f"Targets of type “{_type(model)}” count positions by themselves and so cannot verify a"
            " tree of drafts; choose another target."
        )


def _type(model: PreTrainedModel) -> str:
    return str(getattr(model.config, "model_type", type(model).__name__))


def max_positions(config: Any) -> int:
    """The longest text. Where rotations change with the length of the text (LongRoPE), the longest
    before they do.
    """
    names = ("max_position_embeddings", "max_sequence_length", "max_seq_len", "n_positions")
    found = next((getattr(config, n) for n in names if getattr(config, n, None)), BUCKETS[-1])
    rope = getattr(config, "rope_parameters", None) or {}
    for one in (rope, *(v for v in rope.values() if isinstance(v, dict))):
        original = one.get("original_max_position_embeddings")
        if one.get("rope_type") == "longrope" and original:
            found = min(found, original)
    return int(found)


def _layers(model: Any, config: Any) -> list[nn.Module]:
    """The decoder's layers: the first list of modules that is as long as the config says."""
    count = getattr(config, "num_hidden_layers", None)
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return list(module)
    raise UserError(
        f"The layers of targets of type “{_type(model)}” are not where they are known to be; choose"
        " another target."
    )


@contextmanager
def _tapped(layers: list[nn.Module], taps: tuple[int, ...]) -> Iterator[dict[int, torch.Tensor]]:
    """Collects the outputs ``[w, H]`` of the layers ``taps``."""
    outputs: dict[int, torch.Tensor] = {}

    def keep(index: int) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            outputs[index] = (output[0] if isinstance(output, tuple) else output)[0]

        return hook

    hooks = [layers[i].register_forward_hook(keep(i)) for i in taps]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()
