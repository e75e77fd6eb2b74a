"""One frozen matrix product, by the fastest kernel the device has for a few rows."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..errors import UserError
from . import blocks
from .blocks import Bits, Blocks

# the row count the packed layout is chosen for; any other count still gives correct results
ROWS = 16
NO_INT4 = (
    "Weights of 4 bits run on a CPU for which Numba is installed, in models whose layers are"
    " multiples of 32 wide; choose dtype bf16."
)


def packs(device: torch.device | str, dtype: torch.dtype) -> bool:
    """Whether oneDNN's prepacked product is used here: on CPU in fp32, and in bf16 where the
    processor computes in it natively.
    """
    if (
        torch.device(device).type != "cpu"
        or not torch.backends.mkldnn.is_available()
        or not hasattr(torch.ops.mkldnn, "_linear_pointwise")
    ):
        return False
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


class Linear:
    """``x @ weight.T`` for inference, without bias and without gradients.

    On CPU in bf16 the weight is reordered once into oneDNN's blocked layout, which spares every
    later call the reorder that ``F.linear`` repeats (a 49k x 576 head: 1.5 ms instead of 5.2). In
    fp32 the packed product is no faster, but it sums in the same order for any number of rows from
    two on, so that narrow passes are bitwise equal to wide ones; a single row goes to the plain
    product, which is faster there (at the price of a second copy of the weight). Everywhere else it
    is ``F.linear``.

    Where :mod:`.blocks` are usable they go before oneDNN: a row's bits are the same beside any
    number of others, and a single row is read at the speed of memory.

    Args:
        weight: ``[out, in]``, any dtype; a reference to it is kept only where it is used as it is.
        device, dtype: where and in what the product runs; default: those of ``weight``.
        bits: of a weight; 4 and 8 where blocks are usable, see :func:`.blocks.to_numbers`.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        bits: Bits = 16,
    ):
        weight = (
            weight.detach()
            .to(device=device or weight.device, dtype=dtype or weight.dtype)
            .contiguous()
        )
        self.out_features, self.in_features = weight.shape
        self.device, self.dtype = weight.device, weight.dtype
        self.weight: torch.Tensor | None = weight
        self.packed: torch.Tensor | None = None
        self.blocks: Blocks | None = None
        if blocks.usable(weight, self.dtype, bits):
            self.blocks, self.weight = blocks.pack(weight, bits), None
        elif bits < 16:
            raise UserError(NO_INT4)
        elif packs(self.device, self.dtype):
            try:
                self._pack(weight)
            except (RuntimeError, NotImplementedError):
                # an operator without public promises: a torch that lacks it gets the plain product
                self.packed = None
            else:
                self.weight = weight if self.dtype == torch.float32 else None

    @property
    def stored_bytes(self) -> int:
        """Of the weight as a product reads it."""
        if self.blocks is None:
            item = torch.empty(0, dtype=self.dtype).element_size()
            return self.out_features * self.in_features * item
        scales = self.blocks.scales
        return self.blocks.weights.nbytes + (0 if scales is None else scales.nbytes)

    def _pack(self, weight: torch.Tensor) -> None:
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        one = torch.eye(2, self.in_features, dtype=self.dtype)
        if not torch.equal(
            self(one), weight[:, :2].T if self.in_features > 1 else weight.T.expand(2, -1)
        ):
            raise RuntimeError("the packed product disagrees with the plain one")

    @torch.no_grad()
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., in] -> [..., out]``"""
        if self.blocks is not None:
            if x.dtype != self.dtype:  # its memory would be read as something else
                raise RuntimeError(f"rows are {x.dtype}, the product is of {self.dtype}")
            rows = x.reshape(-1, self.in_features).contiguous()
            return blocks.multiply(rows, self.blocks).view(*x.shape[:-1], self.out_features)
        one_row = x.numel() == self.in_features
        if self.weight is not None and (self.packed is None or one_row):
            return F.linear(x, self.weight)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, None, "none", [], "")

    def __deepcopy__(self, memo: dict) -> Linear:
        """Itself: nothing in it ever changes, and a packed weight has no copy of its own."""
        return self
