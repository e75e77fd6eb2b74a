"""The target: one pass of a Llama-type model over a static cache, for any tree of tokens.

A pass reads ``w`` rows (anchor, then candidate nodes, then padding) at once. Row i sees the
committed context and its own ancestors only, sits at position ``length + depth`` and writes its
keys and values to slot ``length + i``. Committing a path moves its rows together; rolling back is a
smaller ``length``, because rows past it are masked and overwritten. Weights come from the loaded
Hugging Face model, fused and packed by ``models.decoder``; ``check_target`` refuses a model that
computes something else. On a CPU compiled code runs between the products of the layers
(``models.compiled``); prompts and D²SD's cascade attention run eagerly everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedModel

from ..errors import UserError
from ..models.compiled import PassKind, compile_layers
from ..models.decoder import (
    CHUNK_ROWS,
    DecoderLayer,
    DecoderShape,
    KVCache,
    rms_norm,
    signed_sin,
    whole_steps,
)
from ..models.linear import Linear
from .attention import ATTENTIONS, NEAR, AttentionKind, compiled_reads

# From this position on a chunk has half the rows: each reads more keys, and Stop waits for a chunk,
# which is to stay below a second on two cores.
LONG = 4096

BUCKETS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


def bucket(slots: int) -> int:
    """The smallest static cache size that holds ``slots``.

    Raises:
        UserError: no cache is that large.
    """
    for size in BUCKETS:
        if slots <= size:
            return size
    raise UserError(
        f"Prompt and answer need {slots} cache slots and the largest cache has {BUCKETS[-1]};"
        " shorten the prompt or ask for fewer tokens."
    )


def chunks(ids: list[int], position: int = 0) -> Iterator[list[int]]:
    """``ids`` from ``position`` on in the pieces that :meth:`Target.prefill` reads at once."""
    done = 0
    while done < len(ids):
        size = CHUNK_ROWS if position + done < LONG else CHUNK_ROWS // 2
        yield ids[done : done + size]
        done += size


def tree_rows(cache: KVCache, parent: list[int], width: int) -> tuple[list[int], torch.Tensor]:
    """Of a pass of ``width`` rows, an anchor, its tree (``parent``: each node's, -1 is the anchor)
    and padding that only sees itself: the rows' depths and which rows each sees, ``[w, w]`` bool.

    Raises:
        ValueError: the rows do not fit the width or the cache, or the draft is too deep to be
            exact.
    """
    n = len(parent)
    if n + 1 > width or cache.length + width > cache.capacity:
        raise ValueError(f"{n} nodes, width {width}, {cache.length} of {cache.capacity} slots used")
    depth = [0] * width
    seen = torch.eye(width, dtype=torch.bool)
    seen[: n + 1, 0] = True
    for node, above in enumerate(parent):
        depth[node + 1] = depth[above + 1] + 1
        if above >= 0:
            seen[node + 1] |= seen[above + 1]
    if max(depth) > NEAR:
        raise ValueError(f"a draft of depth {max(depth)}; at most {NEAR} is exact")
    return depth, seen


class TreePasses(ABC):
    """What both kinds of targets share."""

    @abstractmethod
    def run(
        self,
        cache: KVCache,
        ids: list[int],
        positions: torch.Tensor,
        seen: torch.Tensor,
        taps: tuple[int, ...] = (),
        attention: AttentionKind = "layout_invariant",
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """One pass: logits ``[w, V]`` of all rows, and the taps.

        Args:
            positions: ``[w]``; seen: ``[w, w]`` bool, which rows each row sees; both on the host.
        """

    def verify(
        self,
        cache: KVCache,
        anchor: int,
        tokens: list[int],
        parent: list[int],
        width: int,
        taps: tuple[int, ...] = (),
        attention: AttentionKind = "layout_invariant",
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits ``[n + 1, V]`` after the anchor and after each of the ``n`` nodes, and their taps,
        from one pass of ``width`` rows.

        Nothing is committed. Rows past ``n`` are padding: they write to slots past every live row
        and no live row sees them.

        Args:
            tokens, parent: the draft's nodes, each after its parent; parent -1 is the anchor.
            taps: as in :meth:`Target.prefill`.
            attention: ``layout_invariant`` gives a tree's rows the very bits of plain decoding,
                ``masked`` is the fastest for one row, ``cascade`` is D²SD's (in the
                general step as exact as everything else).

        Raises:
            ValueError: the rows do not fit the width or the cache, or the draft is too deep to be
                exact.
        """
        n = len(tokens)
        depth, seen = tree_rows(cache, parent, width)
        ids = [anchor, *tokens] + [anchor] * (width - n - 1)
        positions = torch.tensor(depth).add_(cache.length)
        logits, features = self.run(cache, ids, positions, seen, taps, attention)
        return logits[: n + 1], None if features is None else features[: n + 1]


class Target(TreePasses):
    """A decoder of the Llama family (Llama, Mistral without window, Qwen2, Qwen3, SmolLM) ready to
    verify.

    Args:
        model: a loaded Hugging Face causal LM, in the dtype and on the device to run with.
        four_bits: products with weights of 4 bits, the head's of 8 (see :mod:`..models.blocks`).

    Attributes:
        pass_kind: how the layers of a verify pass run.

    Raises:
        UserError: its layers are not of that family, or its rotary positions depend on the length
            of the text.
    """

    def __init__(self, model: PreTrainedModel, four_bits: bool = False):
        config: Any = model.config
        self.config, self.device, self.dtype = config, model.device, model.dtype
        self.four_bits = four_bits
        try:
            body: Any = model.model
            heads = config.num_attention_heads
            self.shape = DecoderShape(
                heads,
                getattr(config, "num_key_value_heads", None) or heads,
                getattr(config, "head_dim", None) or config.hidden_size // heads,
                config.rms_norm_eps,
            )
            self.layers = [
                DecoderLayer.from_module(
                    layer, i, self.shape, self.device, self.dtype, True, 4 if four_bits else 16
                )
                for i, layer in enumerate(body.layers)
            ]
            self.embedding: torch.Tensor = body.embed_tokens.weight.detach()
            self.head_weight: torch.Tensor = model.lm_head.weight.detach()
            self.final_norm: torch.Tensor = body.norm.weight.detach()
            rotary = body.rotary_emb
        except AttributeError as error:
            raise UserError(
                f"Targets of type “{config.model_type}” are not supported yet ({error}); choose a"
                " Llama, Mistral, Qwen2 or Qwen3 type model."
            ) from None
        self.max_positions = min(config.max_position_embeddings, BUCKETS[-1])  # no text is longer
        self.head = Linear(self.head_weight, self.device, self.dtype, 8 if four_bits else 16)
        self.vocab_size = self.head_weight.shape[0]
        self.cos, self.sin = self._rotary(rotary)
        self._compiled = compile_layers(self.layers, self.final_norm)

    @property
    def dtype_name(self) -> str:
        """For people: what weights are stored in."""
        return "int4" if self.four_bits else str(self.dtype).removeprefix("torch.")

    @property
    def pass_kind(self) -> PassKind:
        return "eager" if self._compiled is None else "compiled"

    def _rotary(self, rotary: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and signed sin ``[P, D]`` of all positions."""
        kind = getattr(rotary, "rope_type", "default")
        if kind in ("dynamic", "longrope"):
            raise UserError(
                "This target changes its positions with the length of the text (rope type"
                f" “{kind}”), which a static cache cannot follow; choose another target."
            )
        positions = torch.arange(self.max_positions, device=self.device)[None]
        # [1, P, D]
        cos, sin = rotary(torch.zeros(1, 1, dtype=self.dtype, device=self.device), positions)
        return cos[0].to(self.dtype).contiguous(), signed_sin(sin[0]).to(self.dtype).contiguous()

    def new_cache(self, slots: int) -> KVCache:
        """An empty cache whose capacity is the next bucket."""
        s = self.shape
        return KVCache(
            len(self.layers), s.kv_heads, bucket(slots), s.head_dim, self.dtype, self.device
        )

    # -- one pass ----------------------------------------------------------------------------------

    def prefill(
        self, cache: KVCache, ids: list[int], taps: tuple[int, ...] = ()
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Commit ``ids`` after the cache's content, in :func:`chunks`: a row sees all that came
        before its chunk, and its own chunk up to itself.

        Args:
            taps: layers whose outputs are wanted.

        Returns:
            The last row's logits ``[1, V]``, and the taps of all rows side by side ``[n, len(taps)
            * H]``, or None without any.
        """
        read = [self._read(cache, chunk, taps) for chunk in chunks(ids, cache.length)]
        features = torch.cat([tapped for _, tapped in read]) if taps else None
        return self.head(read[-1][0]), features

    def _read(
        self, cache: KVCache, ids: list[int], taps: tuple[int, ...]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One chunk: the last row ``[1, H]`` after the final norm and the taps of all rows. Rows
        behind the last are padding, seen by none.
        """
        n = len(ids)
        rows = min(whole_steps(n), cache.capacity - cache.length)
        seen = torch.ones(rows, rows, dtype=torch.bool, device=self.device).tril_()
        positions = torch.arange(cache.length, cache.length + rows)
        hidden, features = self._forward(
            cache,
            self._ids(ids + ids[-1:] * (rows - n)),
            positions.clamp_(max=self.max_positions - 1),
            seen,
            taps,
        )
        cache.length += n
        return hidden[n - 1 : n], hidden[:0] if features is None else features[:n]

    def run(
        self,
        cache: KVCache,
        ids: list[int],
        positions: torch.Tensor,
        seen: torch.Tensor,
        taps: tuple[int, ...] = (),
        attention: AttentionKind = "layout_invariant",
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See :class:`TreePasses`."""
        positions = positions.clamp_(max=self.max_positions - 1)
        hidden, features = self._forward(
            cache, self._ids(ids), positions, seen.to(self.device), taps, attention, compiled=True
        )
        return self.head(hidden), features

    def _ids(self, ids: list[int]) -> torch.Tensor:
        return torch.tensor(ids, dtype=torch.long, device=self.device)

    def _forward(
        self,
        cache: KVCache,
        ids: torch.Tensor,
        positions: torch.Tensor,
        seen: torch.Tensor,
        taps: tuple[int, ...],
        attention: AttentionKind = "masked",
        compiled: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Hidden rows ``[w, H]`` after the final norm, and the taps.

        Args:
            positions: ``[w]``, on the host.
            seen: ``[w, w]`` bool, which rows of this pass each row attends to.
            compiled: use the compiled layers where there are any.
        """
        group = self.shape.heads // self.shape.kv_heads
        on_device = positions.to(self.device)
        cos, sin = self.cos[on_device][:, None], self.sin[on_device][:, None]
        x = self.embedding[ids]
        of_pass = (seen, cache.length, cache.capacity, group, self.dtype, positions)
        if compiled and self._compiled is not None and attention != "cascade":
            reads = compiled_reads(*of_pass, self._compiled.far_step)
            return self._compiled(x, cos, sin, cache, cache.length, reads, taps)
        tree = ATTENTIONS[attention](*of_pass)

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = cache.write(layer, cache.length, k, v)
            return tree(q, keys[None], values[None])

        outputs = {-1: x}  # the embeddings
        for layer in self.layers:
            x = layer(x, cos, sin, attend)
            if layer.index in taps:
                outputs[layer.index] = x
        features = torch.cat([outputs[i] for i in taps], -1) if taps else None
        return rms_norm(x, self.final_norm, self.shape.eps), features
