"""Vectors and memory for :mod:`.kernels`: what Numba has no word for, and matrix products of few
columns that stay in registers.

A vector holds the same element of :data:`LANES` neighbouring *lanes*, the columns of a product. The
sums of a lane run in one order whatever the tile, so tiles are chosen by the registers there are.
Memory holds uint16 (the bits of bfloat16) or float32; ``like`` is a zero of that type.
"""

# mypy: disable-error-code="no-untyped-def"

import hashlib
import os
from pathlib import Path

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from ..paths import cache_root

if "NUMBA_CACHE_DIR" not in os.environ:
    # Numba looks at one source file to see whether what it kept is still right; here it is several
    _here = Path(__file__)
    _files = (_here.with_name(f"{name}.py") for name in ("lanes", "kernels", "dots", "whole_pass"))
    _code = b"".join(path.read_bytes() for path in (_here, *_files))
    _folder = cache_root() / "kernels" / hashlib.sha256(_code).hexdigest()[:16]
    numba.config.CACHE_DIR = str(_folder)  # type: ignore[attr-defined]

LANES = 16  # floats of a vector; processors with shorter registers use several for one
CPU_FEATURES = binding.get_host_cpu_features()
# vectors side by side, each with this many sums at once: as many as fit the registers
TILES = ((3, 4), (2, 8), (1, 16)) if CPU_FEATURES.get("avx512f") else ((1, 4),) * 3

_F32 = ir.FloatType()
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_F32, LANES)


def has_fma() -> bool:
    """Whether the processor fuses a product and a sum; without it the kernels would be slow."""
    return bool(
        CPU_FEATURES.get("fma") or binding.get_default_triple().startswith(("aarch64", "arm64"))
    )


# -- what Numba has no word for ------------------------------------------------------------------


@intrinsic
def pointer(context, address, like):
    """``address`` as a pointer to values of the type of ``like``."""

    def build(target, b, signature, arguments):
        return b.inttoptr(arguments[0], target.get_value_type(signature.return_type))

    return types.CPointer(like)(types.int64, like), build


@intrinsic
def float_of(context, bits):
    def build(target, b, signature, arguments):
        return b.bitcast(arguments[0], _F32)

    return types.float32(types.int32), build


@intrinsic
def bits_of(context, value):
    def build(target, b, signature, arguments):
        return b.bitcast(arguments[0], _I32)

    return types.int32(types.float32), build


@intrinsic
def fma(context, a, b, c):
    """``a * b + c``, rounded once."""

    def build(target, builder, signature, arguments):
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), build


def widen(x):
    """A value from memory as float32."""


def narrow(x, like):
    """float32 as it goes to memory, rounded to the nearest, ties to even."""


@overload(widen)
def _widen_as(x):
    if x == types.uint16:
        return lambda x: float_of(np.int32(np.uint32(x) << np.uint32(16)))
    return lambda x: x


@overload(narrow)
def _narrow_as(x, like):
    if like == types.float32:
        return lambda x, like: x

    def rounded(x, like):
        bits = np.uint32(bits_of(x))
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        up = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
        return np.uint16(up) if x == x else np.uint16(0x7FC0)

    return rounded


def size_of(like):
    """Bytes of a value of that type."""


@overload(size_of)
def _size_of(like):
    size = 4 if like == types.float32 else 2
    return lambda like: size


def _make_tile(vectors, sums):
    """A part of :func:`products` that stays in registers: ``sums`` outputs of ``vectors`` vectors
    of lanes each. ``n`` must not be 0.
    """

    @intrinsic
    def tile(context, a, b, out, n, a_step, b_inner, b_outer, out_step):
        def build(target, builder, signature, arguments):
            a, b, out, n, a_step, b_inner, b_outer, out_step = arguments

            def at(base, offset, kind):
                bytes_on = builder.mul(offset, ir.Constant(_I64, 4))
                return builder.inttoptr(builder.add(base, bytes_on), ir.PointerType(kind))

            zero, lane0 = ir.Constant(_VECTOR, None), ir.Constant(_I32, 0)
            undefined = ir.Constant(_VECTOR, ir.Undefined)
            everywhere = ir.Constant(ir.VectorType(_I32, LANES), None)
            fused = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fma.v{LANES}f32"
            )
            before = builder.block
            loop = builder.function.append_basic_block("tile")
            after = builder.function.append_basic_block("tile_end")
            builder.branch(loop)
            builder.position_at_end(loop)
            i = builder.phi(_I64)
            i.add_incoming(ir.Constant(_I64, 0), before)
            totals = [[builder.phi(_VECTOR) for _ in range(vectors)] for _ in range(sums)]
            a_at, b_at = builder.mul(i, a_step), builder.mul(i, b_inner)
            rows = [
                builder.load(
                    at(a, builder.add(a_at, ir.Constant(_I64, LANES * v)), _VECTOR), align=4
                )
                for v in range(vectors)
            ]
            following = builder.add(i, ir.Constant(_I64, 1))
            i.add_incoming(following, loop)
            for o in range(sums):
                b_o = builder.add(b_at, builder.mul(b_outer, ir.Constant(_I64, o)))
                value = builder.load(at(b, b_o, _F32), align=4)
                value = builder.insert_element(undefined, value, lane0)
                value = builder.shuffle_vector(value, undefined, everywhere)
                for v in range(vectors):
                    total = totals[o][v]
                    total.add_incoming(zero, before)
                    total.add_incoming(builder.call(fused, [rows[v], value, total]), loop)
            builder.cbranch(builder.icmp_signed("<", following, n), loop, after)
            builder.position_at_end(after)
            for o in range(sums):
                for v in range(vectors):
                    place = builder.add(
                        builder.mul(out_step, ir.Constant(_I64, o)), ir.Constant(_I64, LANES * v)
                    )
                    builder.store(totals[o][v].incomings[1][0], at(out, place, _VECTOR), align=4)
            return target.get_dummy_value()

        return types.void(*[types.int64] * 8), build

    return tile


def _make_strip(vectors, sums):
    """:func:`products` for as many lanes as ``vectors`` hold."""
    tile, single = _make_tile(vectors, sums), _make_tile(vectors, 1)

    @numba.njit(nogil=True, error_model="numpy")
    def strip(a, b, out, n, lanes, b_inner, b_outer, outputs):
        o = 0
        while o + sums <= outputs:
            to = out + 4 * o * lanes
            tile(a, b + 4 * o * b_outer, to, n, lanes, b_inner, b_outer, lanes)
            o += sums
        while o < outputs:
            to = out + 4 * o * lanes
            single(a, b + 4 * o * b_outer, to, n, lanes, b_inner, b_outer, lanes)
            o += 1

    return strip


_WIDTHS = tuple(LANES * vectors for vectors, _ in TILES)
_wide, _middle, _small = (_make_strip(*tile) for tile in TILES)


@numba.njit(nogil=True, error_model="numpy")
def products(a, b, out, n, lanes, b_inner, b_outer, outputs):
    """``out[o, lane] = sum over i < n, in order, of a[i, lane] * b[i * b_inner + o * b_outer]`` in
    float32, for ``o < outputs``; a tile changes no bit. ``a [n, lanes]``, ``out [outputs, lanes]``.
    """
    lane = 0
    while lane + _WIDTHS[0] <= lanes:
        _wide(a + 4 * lane, b, out + 4 * lane, n, lanes, b_inner, b_outer, outputs)
        lane += _WIDTHS[0]
    while lane + _WIDTHS[1] <= lanes:
        _middle(a + 4 * lane, b, out + 4 * lane, n, lanes, b_inner, b_outer, outputs)
        lane += _WIDTHS[1]
    while lane < lanes:
        _small(a + 4 * lane, b, out + 4 * lane, n, lanes, b_inner, b_outer, outputs)
        lane += _WIDTHS[2]
