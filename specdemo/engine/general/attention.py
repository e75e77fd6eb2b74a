"""What transformers' own model calls in a pass of the general step: masks by position and by the
pass's tree, and attention whose bits do not depend on slots.

Both are registered with the library once, under :data:`NAME`, and know the pass that runs from a
context variable, as the library hands nothing of ours through a model.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface

from ...errors import UserError
from ..attention import AttentionKind

NAME = "specdemo"

# Arguments of a model's attention that change nothing here: what they say is in the mask, is about
# other kernels or about training. Every other one that is not read below is refused by name.
IGNORED = {
    "attention_mask",
    "cache",
    "cache_position",
    "cu_seq_lens_k",
    "cu_seq_lens_q",
    "deterministic",
    "dropout",
    "is_causal",
    "logits_to_keep",
    "max_length_k",
    "max_length_q",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "past_key_values",
    "position_ids",
    "return_dict",
    "sliding_window",
    "use_cache",
}

# (module, q, k, v, mask, scaling, what ours returned, other arguments)
Watch = Callable[..., None]


@dataclass
class Pass:
    """One pass.

    Attributes:
        seen: ``[w, w]`` bool, which of its rows each row attends to.
        start: committed slots. positions: ``[w]`` of the rows, on their device.
        watch: called with every attention's operands and result.
    """

    seen: torch.Tensor
    start: int
    positions: torch.Tensor
    kind: AttentionKind
    watch: Watch | None = None
    calls: int = 0

    def visible(self, rule: Callable | None = None) -> torch.Tensor:
        """``[1, 1, w, start + w]`` bool: slots that each row sees, by the tree and by the model's
        own ``rule`` about positions, such as a window.
        """
        tree = F.pad(self.seen, (self.start, 0), value=True)[None, None]
        if rule is None:
            return tree
        device = self.positions.device
        slots = torch.cat((torch.arange(self.start, device=device), self.positions))
        zero = torch.zeros(1, 1, 1, 1, dtype=torch.long, device=device)
        return tree & rule(zero, zero, self.positions[None, None, :, None], slots[None, None, None])


RUNNING: ContextVar[Pass] = ContextVar("the pass that runs")


def mask_of_pass(
    *, mask_function: Callable | None = None, attention_mask: Any = None, **_: Any
) -> torch.Tensor:
    """For ``AttentionMaskInterface``: ``mask_function`` is the model's own rule of who sees whom,
    asked about positions in place of slots.
    """
    if attention_mask is not None and not bool(torch.as_tensor(attention_mask).all()):
        raise UserError("This target masks parts of its own context, which is not supported.")
    return RUNNING.get().visible(mask_function)


def attention_of_pass(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """For ``AttentionInterface``: ``query [1, Hq, w, D]``, ``key, value [1, Hkv, slots, D]`` ->
    ``[1, w, Hq, D]``.

    Raises:
        UserError: the model asks for something that is not computed here.
    """
    running = RUNNING.get()
    unknown = sorted(n for n, given in more.items() if given is not None and n not in IGNORED)
    if unknown:
        raise UserError(
            f"This target passes “{unknown[0]}” to its attention, which is not supported."
        )
    mask = (running.visible() if attention_mask is None else attention_mask).to(query.device)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    attend = plain if running.kind == "masked" else exact
    out = attend(query, key, value, mask, scale, softcap, s_aux).transpose(1, 2).contiguous()
    running.calls += 1
    if running.watch is not None:
        if softcap is not None:
            more["softcap"] = softcap
        if s_aux is not None:
            more["s_aux"] = s_aux
        running.watch(module, query, key, value, mask, scaling, out, more)
    return out, None


def exact(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention in float64, rounded once: its bits do not depend on which slots the keys are in.
    Shapes as in :func:`attention_of_pass`, but ``[1, Hq, w, D]`` is returned.
    """
    _, heads, w, dim = q.shape
    kv_heads = k.shape[1]
    rows = heads // kv_heads * w
    first = _first_seen(mask)
    k, v, mask = k[0, :, first:].double(), v[0, :, first:].double(), mask[..., first:]
    scores = torch.bmm(q.double().reshape(kv_heads, rows, dim) * scale, k.transpose(-1, -2))
    scores = scores.view(1, heads, w, -1)
    if softcap is not None:
        scores = (scores / softcap).tanh_().mul_(softcap)
    if mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    else:
        scores = scores + mask.double()
    if sinks is not None:
        scores = torch.cat((scores, sinks.double().view(1, -1, 1, 1).expand(1, heads, w, 1)), -1)
    p = scores.softmax(-1)[..., : k.shape[1]]
    out = torch.bmm(p.reshape(kv_heads, rows, -1), v)
    return out.view(1, heads, w, -1).to(q.dtype)


def _first_seen(mask: torch.Tensor) -> int:
    """The first slot that any row sees: windows need not be read before it."""
    if mask.device.type != "cpu" or mask.dtype != torch.bool:
        return 0
    return int(mask.view(-1, mask.shape[-1]).any(0).to(torch.uint8).argmax())


def plain(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """PyTorch's own kernel; shapes as in :func:`exact`, which computes what it cannot."""
    if softcap is not None or sinks is not None or k.shape[-1] != v.shape[-1]:
        return exact(q, k, v, mask, scale, softcap, sinks)
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask if mask.dtype == torch.bool else mask.to(q.dtype),
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )


AttentionInterface.register(NAME, attention_of_pass)
AttentionMaskInterface.register(NAME, mask_of_pass)
