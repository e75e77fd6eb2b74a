"""A stand-alone masked diffusion language model while it is trained: a causal model of transformers
whose rows all see each other, and low-rank adapters on it.

Two published forms (:mod:`..models.diffusion_configs`): ``a2d``, where row i speaks about position
i, and ``dream``, where it speaks about position i + 1, as the causal model it was made from does.
Sources: DiffuLLaMA (arXiv 2410.17891), Dream (arXiv 2508.15487), MDLM (arXiv 2406.07524), LoRA
(arXiv 2106.09685).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..errors import UserError
from .objectives import ROW_MULTIPLE

AT_ONCE = 16  # texts that go through the network together
# the projections of a layer, all of which get adapters
ADAPTED = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTER = "default"  # peft's name of the only adapter


class DiffusionNet(nn.Module):
    """The network, float32. Its texts are read from their first token to the last slot of a block,
    both ways.

    Args:
        lm: a Llama, Qwen2 or Qwen3 causal language model of transformers. Its config also keeps
            ``layout``, ``mask_token_id``, ``block_size`` (slots of a block, anchor included) and
            ``lora_rank`` (0: all weights are trained).
    """

    layer_ids: tuple[int, ...] = ()  # it reads nothing of the target
    draft_vocab: torch.Tensor | None = None  # its ids are the target's
    tokenizer: Any = None  # the target's, which is written beside the weights
    weights = "untrained weights"

    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.lm, self.config = lm, lm.config
        if self.config.lora_rank:
            add_adapters(lm, self.config.lora_rank)
        else:
            lm.requires_grad_(True)

    @property
    def layers(self) -> Any:
        return self.lm.model.layers

    @property
    def head(self) -> torch.Tensor:
        """``[rows, H]``."""
        return self.lm.lm_head.weight

    @property
    def block_size(self) -> int:
        return self.config.block_size

    def states(self, ids: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
        """States ``[S, n, H]`` after the final norm, row i about position i.

        Args:
            ids: ``[S, n]``, masks in place. end: ``[S]`` how many positions each text has; what
                lies behind is padding.
        """
        ids = ids.clamp(max=self.config.vocab_size - 1)
        seen = torch.arange(ids.shape[1], device=ids.device) < end[:, None]
        parts = zip(ids.split(AT_ONCE), seen.split(AT_ONCE), strict=True)
        out = torch.cat([self._read(*part) for part in parts])
        if self.config.layout == "dream":
            out = torch.cat((out[:, :1], out[:, :-1]), 1)
        return out

    def _read(self, ids: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        n = ids.shape[1]
        # a mask of four dimensions is taken as it is, in place of the causal one
        mask = seen[:, None, None].expand(-1, 1, n, n)
        return self.lm.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state

    def fill(
        self,
        tokens: torch.Tensor,
        truth: torch.Tensor,
        masked: torch.Tensor,
        anchors: torch.Tensor,
    ) -> torch.Tensor:
        """Fill ``A`` blocks of each of ``N`` texts, each behind its own reading of the text.

        Args:
            tokens: ``[N, L]``. truth: ``[N, A, B]`` tokens of the blocks; those under ``masked [N,
                A, B]`` are not looked at. anchors: ``[N, A]`` positions of slot 0.
        Returns:
            ``[N, A, B, H]`` states, slot k for the token at anchor + k.
        """
        N, A, B = truth.shape
        n = whole_rows(int(anchors.max()) + B)
        slot = torch.arange(n, device=tokens.device) - anchors[..., None]  # [N, A, n]
        own, index = (slot >= 0) & (slot < B), slot.clamp(0, B - 1)
        text = F.pad(tokens, (0, max(n - tokens.shape[1], 0)))[:, None, :n]
        ids = torch.where(own, truth.gather(-1, index), text)
        ids = torch.where(own & masked.gather(-1, index), self.config.mask_token_id, ids)
        states = self.states(ids.flatten(0, 1), anchors.flatten() + B)
        where = anchors[..., None] + torch.arange(B, device=tokens.device)
        where = where.view(N * A, B, 1).expand(-1, -1, states.shape[-1])
        return states.gather(1, where).view(N, A, B, -1)


def whole_rows(n: int) -> int:
    """``n`` positions, rounded up so that products meet few sizes."""
    return -(-n // ROW_MULTIPLE) * ROW_MULTIPLE


def add_adapters(lm: Any, rank: int) -> None:
    """Put adapters of ``rank`` on every projection of ``lm``, in place, and freeze all else. The
    second factor begins at 0, so nothing changes yet.

    Raises:
        UserError: peft is not installed.
    """
    peft = _peft()
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=ADAPTED, bias="none")
    peft.inject_adapter_in_model(config, lm, adapter_name=ADAPTER)


def merged_tensors(net: DiffusionNet) -> dict[str, torch.Tensor]:
    """The weights by transformers' names, float32 on the CPU, with adapters added in; ``net`` stays
    as it is. A head that is the embedding is left out.
    """
    tied = net.config.tie_word_embeddings
    out = {
        name.replace(".base_layer.", "."): tensor.detach().float().cpu()
        for name, tensor in net.lm.state_dict().items()
        if ".lora_" not in name and not (tied and name == "lm_head.weight")
    }
    if net.config.lora_rank:
        layer_type = import_module("peft.tuners.lora").LoraLayer
        for name, module in net.lm.named_modules():
            if isinstance(module, layer_type):
                delta: torch.Tensor = module.get_delta_weight(ADAPTER)
                out[f"{name}.weight"] = out[f"{name}.weight"] + delta.detach().float().cpu()
    return {name: tensor.contiguous() for name, tensor in out.items()}


def _peft() -> Any:
    try:
        return import_module("peft")
    except ImportError:
        raise UserError(
            "--lora-rank needs the package peft; install it with `pip install peft`, or leave"
            " --lora-rank out to train all weights."
        ) from None
