"""Making rounds on the device at load: which attention, which width, and whether they hold what is
promised here.
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import torch

from ...models.decoder import KVCache
from ..cost import CostModel
from ..target import Target
from .attention import Attention, DoubleAttention, MaskedKernel
from .capture import Capture, CudaCapture
from .checks import CONTEXTS, arbitrary_ids, attention_gap, unequal_rows
from .choose import Processing
from .rounds import SLOTS, DeviceRounds, LaneGraphs, Marks

WIDTHS = (16, 64)  # rows of a pass, of both lanes
FLAT = 1.1  # 64 rows are taken where they cost at most this times 16
CONTEXT = 160  # committed tokens when a round is timed
# largest difference of a kernel from attention in float64, see checks.attention_gap
MAX_GAP_HALF, MAX_GAP_FLOAT32 = 2.0, 0.02


class Chosen(NamedTuple):
    """An attention, and a sentence about the other one where it was refused."""

    attention: Attention
    why: str


def make_rounds(target: Target, repeats: int = 20) -> tuple[DeviceRounds | None, str]:
    """Rounds for a target on a GPU, or None and a sentence that says why there are none."""
    if target.device.type != "cuda":
        return None, ""
    same_bits_everywhere()
    try:
        return prepare(target, CudaCapture(target.device), choose_attention(target), repeats)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        return None, "There is not enough memory on the GPU for captured rounds."
    except RuntimeError as error:  # an operator that cannot be captured here
        first = str(error).strip().splitlines()[:1]
        return None, f"Rounds cannot be captured here ({first[0] if first else 'no reason'})."


def same_bits_everywhere() -> None:
    """Products of the process in the precision of their operands, in the same order every time."""
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = False
    matmul.allow_bf16_reduced_precision_reduction = False
    matmul.allow_fp16_reduced_precision_reduction = False


def choose_attention(target: Target) -> Chosen:
    """Attention by position where its kernels run and are right here, else in float64."""
    group = target.shape.heads // target.shape.kv_heads
    double = DoubleAttention(group)
    try:
        from .kernel import PositionAttention

        ours = PositionAttention(group)
        gap = attention_gap(ours, target)
    except ImportError:
        return Chosen(double, "Triton is not installed.")
    except Exception as error:  # whatever a compiler or a driver says, float64 is there
        return Chosen(double, f"Triton's kernels do not run here ({type(error).__name__}).")
    most = MAX_GAP_FLOAT32 if target.dtype == torch.float32 else MAX_GAP_HALF
    if not gap <= most:
        return Chosen(double, f"Triton's kernels are off by {gap:.2g} units here.")
    return Chosen(ours, "")


def prepare(
    target: Target, capture: Capture, chosen: Chosen, repeats: int = 20
) -> tuple[DeviceRounds | None, str]:
    """Check and time the widths; rounds with the better one, or None and why."""
    sets: dict[int, LaneGraphs] = {}
    ms: dict[int, float] = {}
    unequal: dict[int, int] = {}
    for width in WIDTHS:
        sets[width] = graphs_of(target, chosen.attention, capture, width)
        unequal[width] = sum(unequal_rows(sets[width], context) for context in CONTEXTS)
        if not unequal[width]:
            ms[width] = round_ms(sets[width], repeats)
    if not ms:
        return None, (
            "On this GPU a row's bits depend on its place in a pass"
            f" ({unequal[WIDTHS[0]]} rows of {WIDTHS[0]}), so rounds are not captured."
        )
    one_row = one_row_ms(target, chosen.attention, capture, repeats)
    narrow = min(ms)
    width = max(width for width in ms if ms[width] <= FLAT * ms[narrow])
    costs = CostModel({1: one_row, **ms}, one_row, [width])
    filters = _captures_filters(sets[width])
    rounds = DeviceRounds(target, chosen.attention, capture, width, costs, chosen.why, filters)
    return rounds, ""


def _captures_filters(graphs: LaneGraphs) -> bool:
    """Whether the sort that filters need can be captured here."""
    try:
        graphs.verify(Processing(penalty=True, noise=True, filters=True))
    except RuntimeError:
        return False
    return True


def graphs_of(
    target: Target, attention: Attention, capture: Capture, width: int, slots: int = SLOTS[0]
) -> LaneGraphs:
    """Buffers and graphs of a plain lane on a cache of its own."""
    shape = target.shape
    cache = KVCache(
        len(target.layers), shape.kv_heads, slots, shape.head_dim, target.dtype, target.device
    )
    return LaneGraphs(target, cache, width, attention, capture)


def one_row_ms(target: Target, attention: Attention, capture: Capture, repeats: int) -> float:
    """Milliseconds of the fastest way to decode plainly here: one row, captured, by PyTorch's
    masked kernel or by ``attention``.
    """
    group = target.shape.heads // target.shape.kv_heads
    kinds = (MaskedKernel(group, target.dtype), attention)
    return min(round_ms(graphs_of(target, kind, capture, 1), repeats) for kind in kinds)


@torch.inference_mode()
def round_ms(graphs: LaneGraphs, repeats: int, context: int = CONTEXT) -> float:
    """Median milliseconds of a plain round as a lane runs it, upload and the wait for its outcome
    included.
    """
    state, target = graphs.state, graphs.target
    verify = graphs.verify(Processing())
    state.cache.length = 0
    target.prefill(state.cache, arbitrary_ids(target, 37, 101, context))
    marks, samples = Marks(target.device, 1), []
    for _ in range(repeats + 1):
        state.length.fill_(context)
        began = time.perf_counter()
        state.upload([], [])
        verify()
        state.download()
        marks.mark(0)
        marks.wait()
        state.outcome()
        samples.append((time.perf_counter() - began) * 1e3)
    return statistics.median(samples[1:])
