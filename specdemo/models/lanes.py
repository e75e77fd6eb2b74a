"""Code for vectors of :data:`LANES` neighbouring floats, written out as LLVM's instructions, and
the few steps of :mod:`.kernels` that need an exponential in every lane: whether Numba turns a loop
into such code depends on the function that it is in.

The same operations in the same order as the scalar code there, so also the same bits.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .vectors import LANES

F32, I16, I32, I64 = ir.FloatType(), ir.IntType(16), ir.IntType(32), ir.IntType(64)
FLOATS, INTS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)
SHORTS = ir.VectorType(I16, LANES)
# e^r = 1 + r + r^2 * p(r), Cephes' expf
EXP = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1,
)  # fmt: skip


class Code:
    """Instructions at the end of ``builder``'s block.

    Args:
        full: rows in memory are float32, else bfloat16.
    """

    def __init__(self, builder, full: bool):
        self.b, self.full = builder, full

    def call(self, name, kind, *arguments):
        f = cgutils.get_or_insert_function(
            self.b.module, ir.FunctionType(kind, [a.type for a in arguments]), name
        )
        return self.b.call(f, arguments)

    def load(self, base, offset, kind, align):
        at = self.b.inttoptr(self.b.add(base, offset), ir.PointerType(kind))
        return self.b.load(at, align=align)

    def ints(self, value: int):
        return ir.Constant(INTS, [value] * LANES)

    def floats(self, value: float):
        return ir.Constant(FLOATS, [float(np.float32(value))] * LANES)

    def splat(self, value):
        undefined = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
        first = self.b.insert_element(undefined, value, ir.Constant(I32, 0))
        everywhere = ir.Constant(ir.VectorType(I32, LANES), None)
        return self.b.shuffle_vector(first, undefined, everywhere)

    def fma(self, a, b, c):
        return self.call(f"llvm.fma.v{LANES}f32", FLOATS, a, b, c)

    def read(self, base):
        """Values of a row, as float32."""
        if self.full:
            return self.load(base, ir.Constant(I64, 0), FLOATS, 4)
        bits = self.b.zext(self.load(base, ir.Constant(I64, 0), SHORTS, 2), INTS)
        return self.b.bitcast(self.b.shl(bits, self.ints(16)), FLOATS)

    def store(self, base, offset, value):
        """``value`` to memory in the rows' type, rounded to the nearest, ties to even."""
        b = self.b
        if self.full:
            b.store(value, b.inttoptr(b.add(base, offset), ir.PointerType(FLOATS)), align=4)
            return
        bits = b.bitcast(value, INTS)
        odd = b.and_(b.lshr(bits, self.ints(16)), self.ints(1))
        up = b.lshr(b.add(b.add(bits, self.ints(0x7FFF)), odd), self.ints(16))
        number = b.fcmp_ordered("ord", value, value)
        found = b.trunc(b.select(number, up, self.ints(0x7FC0)), SHORTS)
        b.store(found, b.inttoptr(b.add(base, offset), ir.PointerType(SHORTS)), align=2)

    def exp(self, x):
        """As the scalar one; what is no number stays none."""
        b = self.b
        for bound, beyond in ((-87.0, "<"), (87.0, ">")):
            x = b.select(b.fcmp_ordered(beyond, x, self.floats(bound)), self.floats(bound), x)
        half = self.fma(x, self.floats(1.44269504088896341), self.floats(0.5))
        n = self.call(f"llvm.floor.v{LANES}f32", FLOATS, half)
        r = self.fma(n, self.floats(-0.693359375), x)
        r = self.fma(n, self.floats(2.12194440e-4), r)
        p = self.floats(EXP[0])
        for factor in EXP[1:]:
            p = self.fma(p, r, self.floats(factor))
        y = b.fadd(self.fma(p, b.fmul(r, r), r), self.floats(1.0))
        power = b.shl(b.add(b.fptosi(n, INTS), self.ints(127)), self.ints(23))
        return b.fmul(y, b.bitcast(power, FLOATS))


@intrinsic
def silu_lanes(context, gate, up, out, like):
    """``out = silu(gate) * up``, of as many neighbouring values as there are lanes."""

    def build(target, b, signature, arguments):
        gate, up, out, _ = arguments
        code = Code(b, signature.args[-1] == types.float32)
        x = code.read(gate)
        sigmoid = b.fdiv(code.floats(1.0), b.fadd(code.floats(1.0), code.exp(b.fneg(x))))
        code.store(out, ir.Constant(I64, 0), b.fmul(b.fmul(x, sigmoid), code.read(up)))
        return target.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, like), build


@intrinsic
def top_lanes(context, scores, step, count, top):
    """``top = max(top, scores)`` over ``count`` vectors, ``step`` bytes apart; float32."""

    def build(target, b, signature, arguments):
        scores, step, count, top = arguments
        code, nothing = Code(b, True), ir.Constant(I64, 0)
        most = cgutils.alloca_once_value(b, code.read(top))
        with cgutils.for_range(b, count) as loop:
            score, before = code.load(scores, b.mul(loop.index, step), FLOATS, 4), b.load(most)
            b.store(b.select(b.fcmp_ordered(">", score, before), score, before), most)
        code.store(top, nothing, b.load(most))
        return target.get_dummy_value()

    return types.void(*[types.int64] * 4), build


@intrinsic
def weigh_lanes(context, scores, step, count, top, total):
    """``scores = exp(scores - top)``, 0 for -inf, and ``total`` more by these, of ``count`` vectors
    of scores, ``step`` bytes apart; float32.
    """

    def build(target, b, signature, arguments):
        scores, step, count, top, total = arguments
        code, nothing = Code(b, True), ir.Constant(I64, 0)
        most, total_at = code.read(top), total
        total = cgutils.alloca_once_value(b, code.read(total_at))
        with cgutils.for_range(b, count) as loop:
            place = b.mul(loop.index, step)
            score = code.load(scores, place, FLOATS, 4)
            p = code.exp(b.fsub(score, most))
            hidden = b.fcmp_ordered("==", score, code.floats(float("-inf")))
            p = b.select(hidden, code.floats(0.0), p)
            code.store(scores, place, p)
            b.store(b.fadd(b.load(total), p), total)
        code.store(total_at, nothing, b.load(total))
        return target.get_dummy_value()

    return types.void(*[types.int64] * 5), build
