"""One frozen matrix product, by the fastest kernel the device has for a few rows."""

from __future__ import annotations

import torch
import torch.nn.functional as F

ROWS = 16  # the row count the packed layout is chosen for; any other count still gives correct results


def packs(device: torch.device | str, dtype: torch.dtype) -> bool:
    """Whether oneDNN's prepacked product is worth using here: bf16 on a CPU with native bf16 (fp32 gains nothing)."""
    return torch.device(device).type == "cpu" and dtype == torch.bfloat16 and torch.backends.mkldnn.is_available() \
        and torch.ops.mkldnn._is_mkldnn_bf16_supported() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class Linear:
    """``x @ weight.T`` for inference, without bias and without gradients.

    On CPU in bf16 the weight is reordered once into oneDNN's blocked layout, which spares every later call the reorder
    that ``F.linear`` repeats (a 49k x 576 head: 1.5 ms instead of 5.2). Everywhere else it is ``F.linear``.

    Args:
        weight: ``[out, in]``, any dtype; a reference to it is kept only where it is used as it is.
        device, dtype: where and in what the product runs; default: those of ``weight``.
    """

    def __init__(self, weight: torch.Tensor, device: torch.device | str | None = None, dtype: torch.dtype | None = None):
        weight = weight.detach().to(device=device or weight.device, dtype=dtype or weight.dtype).contiguous()
        self.out_features, self.in_features = weight.shape
        self.device, self.dtype = weight.device, weight.dtype
        self.weight: torch.Tensor | None = weight
        self.packed: torch.Tensor | None = None
        if packs(self.device, self.dtype):
            try:
                self._pack(weight)
            except (RuntimeError, NotImplementedError):
                self.packed = None  # an operator without public promises: a torch that lacks it gets the plain product
            else:
                self.weight = None

    def _pack(self, weight: torch.Tensor) -> None:
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        one = torch.eye(2, self.in_features, dtype=self.dtype)
        if not torch.equal(self(one), weight[:, :2].T if self.in_features > 1 else weight.T.expand(2, -1)):
            raise RuntimeError("the packed product disagrees with the plain one")

    @torch.no_grad()
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., in] -> [..., out]``"""
        if self.packed is None:
            return F.linear(x, self.weight)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, None, "none", [], "")
