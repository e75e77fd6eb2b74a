"""Matrix products of a few rows on a CPU, for :mod:`.whole_pass`: weights in blocks that one vector
register after the other reads, and the loops that stay in registers.

A vector holds the same input pair of :data:`LANES` neighbouring *outputs*. An output of a row is
one sum over its inputs, from the first up, in float32: which rows a tile takes together, and which
thread computes it, changes no bit, so a row's bits do not depend on how many rows there are.

Layouts, ``V = out / 16`` vectors, inputs in pairs, 16 outputs side by side:

==========  =====================================================================================
``BF16``    ``[V, in / 2, 16, 2]`` bfloat16
``INT4``    ``[V, in / 32, 4, 16, 2]`` uint16 of four numbers from 0 to 15: pairs 4 j to 4 j + 3 of
            a group of 32 inputs, lowest bits first; ``scales [V, in / 32, 2, 16]`` float32: scale
            and minimum, weight = scale * number + minimum (GGUF's Q4_1)
``INT8``    ``[V, in / 32, 16, 16, 2]`` int8; ``scales [V, in / 32, 1, 16]`` (GGUF's Q8_0)
==========  =====================================================================================

With AVX512_BF16 two products and their sums are one instruction (each rounded as usual,
denormal numbers as zero); elsewhere two fused ones. Rows hold uint16 (the bits of bfloat16) or, for
whole numbers, float32; ``like`` is a zero of that type.
"""

# mypy: disable-error-code="no-untyped-def"

from typing import NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from .lanes import F32, FLOATS, I16, I32, I64, INTS, SHORTS, Code
from .vectors import CPU_FEATURES, LANES, pointer, size_of, widen

BF16, INT4, INT8 = 1, 2, 3
GROUP = 32  # inputs that share a scale
NATIVE = bool(CPU_FEATURES.get("avx512bf16"))

_WORDS = ir.VectorType(I16, 2 * LANES)


class _BFloat(ir.Type):
    """LLVM's bfloat, which llvmlite does not name."""

    def __str__(self) -> str:
        return "bfloat"

    def __eq__(self, other) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


_BFLOATS = ir.VectorType(_BFloat(), 2 * LANES)
# the bits of 0 to 15 in bfloat16, twice: an index of five bits, of which the highest says nothing
_NUMBERS = [int(np.float32(i).view(np.uint32)) >> 16 for i in range(16)] * 2


class _Dots(Code):
    """What the tiles are made of."""

    def __init__(self, builder, full: bool):
        super().__init__(builder, full)
        self.native = NATIVE and not full

    def halves(self, pairs):
        """Pairs of bfloat16 ``<16 x i32>`` as two vectors of float32."""
        low, high = self.b.shl(pairs, self.ints(16)), self.b.and_(pairs, self.ints(-65536))
        return self.b.bitcast(low, FLOATS), self.b.bitcast(high, FLOATS)

    def inputs(self, base, pair_bytes):
        """A pair of a row's inputs in every lane, as :meth:`dot` takes it."""
        if self.full:
            at = self.b.mul(pair_bytes, ir.Constant(I64, 2))
            second = self.b.add(at, ir.Constant(I64, 4))
            return tuple(self.splat(self.load(base, x, F32, 4)) for x in (at, second))
        pairs = self.splat(self.load(base, pair_bytes, I32, 4))
        return pairs if self.native else self.halves(pairs)

    def prefetch_group(self, ahead, scales, i, steps, step_bytes: int, numbers: int, *tile: int):
        """:meth:`prefetch` of group ``i`` of the vectors at ``ahead``, as many as a ``tile`` of
        (rows, vectors) uses in one go, and of the scales behind the tile's own.
        """
        rows, vectors = tile
        for v in range(vectors if rows == 1 else 1):
            group = self.b.add(i, self.b.mul(steps, ir.Constant(I64, v)))
            begin = self.b.add(ahead, self.b.mul(group, ir.Constant(I64, step_bytes)))
            for line in range(0, step_bytes, 64):
                self.prefetch(self.b.add(begin, ir.Constant(I64, line)))
            group = self.b.add(i, self.b.mul(steps, ir.Constant(I64, v + vectors)))
            begin = self.b.add(scales, self.b.mul(group, ir.Constant(I64, 64 * numbers)))
            for line in range(0, 64 * numbers, 64):
                self.prefetch(self.b.add(begin, ir.Constant(I64, line)))

    def weights(self, kind, base, offset, pair: int):
        """Pair ``pair`` of the vectors at ``base + offset``: pairs of bfloat16, or two vectors."""
        if kind == INT4:
            return self._four_bits(base, offset, pair)
        if kind == INT8:
            return self._eight_bits(base, offset, pair)
        pairs = self.load(base, self.b.add(offset, ir.Constant(I64, 64 * pair)), INTS, 64)
        return pairs if self.native else self.halves(pairs)

    def _four_bits(self, base, offset, pair):
        at = self.b.add(offset, ir.Constant(I64, 64 * (pair // 4)))
        shift = 4 * (pair % 4)
        if self.native:
            words = self.load(base, at, _WORDS, 64)
            if shift:
                words = self.b.lshr(words, ir.Constant(_WORDS, [shift] * 2 * LANES))
            table = ir.Constant(_WORDS, _NUMBERS)
            found = self.call("llvm.x86.avx512.permvar.hi.512", _WORDS, table, words)
            return self.b.bitcast(found, INTS)
        bits = self.load(base, at, INTS, 64)
        return tuple(
            self.b.uitofp(
                self.b.and_(self.b.lshr(bits, self.ints(shift + more)), self.ints(15)), FLOATS
            )
            for more in (0, 16)
        )

    def _eight_bits(self, base, offset, pair):
        at = self.b.add(offset, ir.Constant(I64, 32 * pair))
        bits = self.b.zext(self.load(base, at, SHORTS, 32), INTS)
        low, high = (
            self.b.sitofp(self.b.ashr(self.b.shl(bits, self.ints(up)), self.ints(24)), FLOATS)
            for up in (24, 16)
        )
        if not self.native:
            return low, high
        # numbers below 256 have no bits where bfloat16 has none
        down = self.b.lshr(self.b.bitcast(low, INTS), self.ints(16))
        return self.b.or_(down, self.b.bitcast(high, INTS))

    def scale(self, part, totals, scales, sums, i, steps, sums_step, numbers: int):
        """``part [rows][vectors]``, sums of group ``i`` in whole numbers, becomes ``totals`` and
        that group; ``numbers`` vectors a group: scales, and minima where there are two.
        """

        def times(value, by: int):
            return self.b.mul(value, ir.Constant(I64, by))

        for v in range(len(part[0])):
            place = times(self.b.add(i, times(steps, v)), 64 * numbers)
            scale = self.load(scales, place, FLOATS, 64)
            for row, total in zip(part, totals, strict=True):
                row[v] = self.fma(scale, row[v], total[v])
            if numbers == 1:
                continue
            least = self.load(scales, self.b.add(place, ir.Constant(I64, 64)), FLOATS, 64)
            for r, row in enumerate(part):
                sum_at = self.b.add(times(i, 4), times(sums_step, r))
                row[v] = self.fma(least, self.splat(self.load(sums, sum_at, F32, 4)), row[v])

    def prefetch(self, address):
        """Begin to bring the cache line at ``address`` to the second level; it may be anywhere."""
        at = self.b.inttoptr(address, ir.PointerType(ir.IntType(8)))
        numbers = [ir.Constant(I32, x) for x in (0, 2, 1)]  # to read, second level, data
        kinds = [at.type, I32, I32, I32]
        f = cgutils.get_or_insert_function(
            self.b.module, ir.FunctionType(ir.VoidType(), kinds), "llvm.prefetch.p0i8"
        )
        self.b.call(f, [at, *numbers])

    def write(self, part, out, out_step):
        """``part [rows][vectors]`` to the rows at ``out``, which are ``out_step`` bytes apart."""
        for r, row in enumerate(part):
            for v, value in enumerate(row):
                place = self.b.mul(out_step, ir.Constant(I64, r))
                more = ir.Constant(I64, (4 if self.full else 2) * LANES * v)
                self.store(out, self.b.add(place, more), value)

    def dot(self, total, weights, inputs):
        """``total`` and the products of a pair."""
        if not self.native:
            total = self.fma(weights[0], inputs[0], total)
            return self.fma(weights[1], inputs[1], total)
        pairs = [self.b.bitcast(x, _BFLOATS) for x in (weights, inputs)]
        return self.call("llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, total, *pairs)


def _make_tile(kind: int, rows: int, vectors: int):
    """The outputs of ``vectors`` vectors in ``rows`` rows, kept in registers.

    A step of the loop is a pair of inputs in bfloat16 and a group of :data:`GROUP` in whole
    numbers. In bfloat16 several rows bring a cache line from ``ahead`` on nearer with every step:
    what follows in memory then arrives while they compute. In whole numbers one row needs it too,
    as its unpacking takes longer than a processor looks ahead by itself.
    """
    pairs = 1 if kind == BF16 else GROUP // 2
    # of a group, numbers are vectors of scales and minima
    step_bytes, numbers = _STEP_BYTES[kind], {BF16: 0, INT4: 2, INT8: 1}[kind]

    @intrinsic
    def tile(context, w, scales, x, sums, out, steps, x_step, sums_step, out_step, ahead, like):
        def build(target, b, signature, arguments):
            w, scales, x, sums, out, steps, x_step, sums_step, out_step, ahead, _ = arguments
            code = _Dots(b, signature.args[-1] == types.float32)
            zero = ir.Constant(FLOATS, None)

            def times(value, by: int):
                return b.mul(value, ir.Constant(I64, by))

            before, f = b.block, b.function
            loop, after = f.append_basic_block("dots"), f.append_basic_block("dots_end")
            b.branch(loop)
            b.position_at_end(loop)
            i = b.phi(I64)
            i.add_incoming(ir.Constant(I64, 0), before)
            totals = [[b.phi(FLOATS) for _ in range(vectors)] for _ in range(rows)]
            at, x_at = times(i, step_bytes), times(i, 4 * pairs)
            places = [b.add(at, times(times(steps, step_bytes), v)) for v in range(vectors)]
            row_at = [b.add(x, times(x_step, r)) for r in range(rows)]
            part = [[zero] * vectors if numbers else list(row) for row in totals]
            if kind == BF16 and rows > 1:
                code.prefetch(b.add(ahead, at))
            if numbers:
                code.prefetch_group(ahead, scales, i, steps, step_bytes, numbers, rows, vectors)
            for pair in range(pairs):
                weights = [code.weights(kind, w, place, pair) for place in places]
                pair_at = b.add(x_at, ir.Constant(I64, 4 * pair))
                for r in range(rows):
                    inputs = code.inputs(row_at[r], pair_at)
                    for v in range(vectors):
                        part[r][v] = code.dot(part[r][v], weights[v], inputs)
            if numbers:
                code.scale(part, totals, scales, sums, i, steps, sums_step, numbers)
            following = b.add(i, ir.Constant(I64, 1))
            i.add_incoming(following, loop)
            for r in range(rows):
                for v in range(vectors):
                    totals[r][v].add_incoming(zero, before)
                    totals[r][v].add_incoming(part[r][v], loop)
            b.cbranch(b.icmp_signed("<", following, steps), loop, after)
            b.position_at_end(after)
            code.write(part, out, out_step)
            return target.get_dummy_value()

        return types.void(*[types.int64] * 10, like), build

    return tile


class _Tile(NamedTuple):
    rows: int
    vectors: int


# by kind, the most rows first: what was fastest (Zen 5), and no more than that, as each is compiled
_TILES = {
    BF16: (_Tile(4, 4), _Tile(1, 4)),
    INT4: (_Tile(16, 1), _Tile(8, 1), _Tile(4, 2), _Tile(1, 2)),
    INT8: (_Tile(16, 1), _Tile(4, 4), _Tile(1, 4)),
}
_STEP_BYTES = {BF16: 64, INT4: 256, INT8: 512}  # of a vector
_SCALE_BYTES = {BF16: 0, INT4: 128, INT8: 64}


def _make_product(kind: int, shapes: tuple[_Tile, ...], single):
    """:func:`product` for one kind of weights, from row ``r`` on. ``single`` is a tile of one row
    and one vector, for vectors that are left.
    """
    (taken, vectors), last = shapes[0], len(shapes) == 1
    tile = _make_tile(kind, taken, vectors)
    rest = tile if last else _make_product(kind, shapes[1:], single)
    step_bytes, scale_bytes = _STEP_BYTES[kind], _SCALE_BYTES[kind]

    @numba.njit(nogil=True, error_model="numpy")
    def take(
        w, scales, x, sums, out, steps, count, x_step, sums_step, out_step, width, r, n, after, like
    ):
        whole, end = count // vectors * vectors, r + (n - r) // taken * taken
        for v in range(0, whole if end > r else 0, vectors):
            w_v, scales_v = w + v * steps * step_bytes, scales + v * steps * scale_bytes
            ahead = after if v + vectors == whole else w_v + vectors * steps * step_bytes
            for i in range(r, end, taken):
                tile(
                    w_v, scales_v, x + i * x_step, sums + i * sums_step,
                    out + i * out_step + v * width, steps, x_step, sums_step, out_step, ahead, like,
                )  # fmt: skip
                ahead += steps * step_bytes
        for v in range(whole, count):
            for i in range(r, end):
                single(
                    w + v * steps * step_bytes, scales + v * steps * scale_bytes,
                    x + i * x_step, sums + i * sums_step, out + i * out_step + v * width,
                    steps, x_step, sums_step, out_step, 0, like,
                )  # fmt: skip
        if not last:
            rest(
                w, scales, x, sums, out, steps, count, x_step, sums_step, out_step, width, end, n,
                after, like,
            )  # fmt: skip

    return take


_pairs, _four_bits, _eight_bits = (
    _make_product(kind, shapes, _make_tile(kind, 1, 1)) for kind, shapes in _TILES.items()
)


@numba.njit(nogil=True, error_model="numpy")
def product(kind, w, scales, x, sums, out, n, k, outs, first, last, after, like, numbers):
    """The outputs of the vectors from ``first`` to before ``last``, of ``outs / 16``: ``out [n,
    outs] = x [n, k] @ weights.T``. ``sums`` are of :func:`group_sums`, for ``INT4``; ``after`` is
    the address of the weights that this thread reads next. Without ``numbers`` the kind is
    ``BF16``, else one of the others: Numba leaves out, by its type, what is not needed.
    """
    width = size_of(like)
    x_step, out_step, count = k * width, outs * width, last - first
    out += first * LANES * width
    if numbers is None:
        steps = k // 2
        _pairs(
            w + first * steps * 64, scales, x, sums, out, steps, count, x_step, 0, out_step,
            LANES * width, 0, n, after, like,
        )  # fmt: skip
    else:
        steps = k // GROUP
        if kind == INT4:
            _four_bits(
                w + first * steps * 256, scales + first * steps * 128, x, sums, out, steps, count,
                x_step, 4 * steps, out_step, LANES * width, 0, n, after, like,
            )  # fmt: skip
        else:
            _eight_bits(
                w + first * steps * 512, scales + first * steps * 64, x, sums, out, steps, count,
                x_step, 0, out_step, LANES * width, 0, n, after, like,
            )  # fmt: skip


@numba.njit(nogil=True, error_model="numpy")
def group_sums(x_at, out_at, n, k, like):
    """Sums of the groups of ``x [n, k]``: float32 ``[n, k / 32]``, each from the first input up."""
    x = carray(pointer(x_at, like), (n, k))
    out = carray(pointer(out_at, np.float32(0)), (n, k // GROUP))
    for r in range(n):
        for g in range(k // GROUP):
            total = np.float32(0.0)
            for i in range(g * GROUP, (g + 1) * GROUP):
                total += widen(x[r, i])
            out[r, g] = total
