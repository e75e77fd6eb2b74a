"""Machine code for everything between a CPU layer's matrix products: norms, rotation, attention,
the MLP's gate. Numba compiles it once a machine (a few seconds) and keeps it in the cache folder.

PyTorch runs these parts as some fifty operators a layer, most of them shorter than their own call.
Here every sum has one order, written out below and the same for any number of rows: over ``d`` from
0 up, over slots from the first up. A slot that a row does not see adds an exact zero. So a row's
bits depend on what it sees and on nothing else: not on the other rows, not on padding, not on the
slots that a tree's path lies in. No compiler flag may reorder or fuse arithmetic (products and sums
are fused only where ``fma`` says so), so the bits are also the same on every processor.

Shapes: ``n`` rows, ``Hq`` query heads, ``Hkv`` key heads, ``G = Hq / Hkv``, ``D`` head dimension.
In attention a lane of :mod:`.vectors` is a query: lane ``g * n + i`` is row i's query head g of
those that share a key head, filled up to a multiple of :data:`LANES`.

Arguments are addresses, because a tensor or array costs more to hand over than a short kernel runs.
``like`` is a zero of the type in memory: uint16 (the bits of bfloat16) or float32. Numba reads the
types from the calls, so the functions here carry no annotations.
"""

# mypy: disable-error-code="no-untyped-def"

import math

import numba
import numpy as np
from numba import carray

from .lanes import silu_lanes, top_lanes, weigh_lanes
from .vectors import LANES, float_of, fma, has_fma, narrow, pointer, products, size_of, widen

__all__ = [
    "add_norm", "attend", "copy", "has_fma", "merge_parts", "read_part", "rotate_store",
    "scratch_floats", "silu_multiply", "write_part",
]  # fmt: skip


@numba.njit(nogil=True, error_model="numpy")
def _exp(x):
    """e^x in float32 within two units of the last place (Cephes' expf); +-87 and beyond stay at
    that.
    """
    x = min(max(x, np.float32(-87.0)), np.float32(87.0))
    n = np.float32(math.floor(fma(x, np.float32(1.44269504088896341), np.float32(0.5))))
    r = fma(n, np.float32(-0.693359375), x)
    r = fma(n, np.float32(2.12194440e-4), r)
    p = np.float32(1.9875691500e-4)
    p = fma(p, r, np.float32(1.3981999507e-3))
    p = fma(p, r, np.float32(8.3334519073e-3))
    p = fma(p, r, np.float32(4.1665795894e-2))
    p = fma(p, r, np.float32(1.6666665459e-1))
    p = fma(p, r, np.float32(5.0000001201e-1))
    y = fma(p, r * r, r) + np.float32(1.0)
    return y * float_of((np.int32(n) + np.int32(127)) << np.int32(23))


@numba.njit(nogil=True, error_model="numpy")
def copy(row, out):
    """``out = row``, of which no shape is compared: what Numba says of unlike ones takes seconds to
    compile.
    """
    for i in range(row.size):
        out[i] = row[i]


@numba.njit(nogil=True, error_model="numpy")
def _inverse_rms(row, eps, part):
    """1 / sqrt(mean of squares + eps) of ``row [H]``; ``part [LANES]`` is scratch."""
    h = row.shape[0]
    part[:] = np.float32(0.0)
    for c in range(h // LANES):
        for l in range(LANES):
            v = widen(row[c * LANES + l])
            part[l] = fma(v, v, part[l])
    total = np.float32(0.0)
    for l in range(LANES):
        total += part[l]
    for j in range(h // LANES * LANES, h):
        v = widen(row[j])
        total = fma(v, v, total)
    return np.float32(1.0) / np.float32(math.sqrt(total / np.float32(h) + np.float32(eps)))


@numba.njit(nogil=True, error_model="numpy", cache=True)
def add_norm(x_at, delta_at, weight_at, out_at, n, h, eps, like):
    """``x += delta`` in place, where ``delta_at`` is not 0; then ``out = rms_norm(x) * weight``.
    All ``[n, h]``, ``weight [h]``.
    """
    x, out = carray(pointer(x_at, like), (n, h)), carray(pointer(out_at, like), (n, h))
    delta, weight = carray(pointer(delta_at, like), (n, h)), carray(pointer(weight_at, like), h)
    part = np.empty(LANES, np.float32)
    for i in range(n):
        if delta_at:
            for j in range(h):
                x[i, j] = narrow(widen(x[i, j]) + widen(delta[i, j]), like)
        scale = _inverse_rms(x[i], eps, part)
        for j in range(h):
            out[i, j] = narrow(widen(x[i, j]) * scale * widen(weight[j]), like)


@numba.njit(nogil=True, error_model="numpy", cache=True)
def silu_multiply(gate_up_at, out_at, n, m, first, last, like):
    """``out [n, m] = silu(gate) * up`` of ``gate_up [n, 2 * m]``, from column ``first`` to before
    ``last``.
    """
    gate_up = carray(pointer(gate_up_at, like), (n, 2 * m))
    out = carray(pointer(out_at, like), (n, m))
    whole = first + (last - first) // LANES * LANES
    size = size_of(like)
    for i in range(n):
        at, to = gate_up_at + 2 * i * m * size, out_at + i * m * size
        for j in range(first, whole, LANES):
            silu_lanes(at + j * size, at + (m + j) * size, to + j * size, like)
        for j in range(whole, last):
            gate = widen(gate_up[i, j])
            sigmoid = np.float32(1.0) / (np.float32(1.0) + _exp(-gate))
            out[i, j] = narrow(gate * sigmoid * widen(gate_up[i, m + j]), like)


@numba.njit(nogil=True, error_model="numpy")
def _rotate(row, cos, sin, out, like):
    """Rotary positions of one head ``row [D]``, ``sin`` signed as in ``decoder.signed_sin``."""
    half = row.shape[0] // 2
    for d in range(half):
        a, b = widen(row[d]), widen(row[half + d])
        out[d] = narrow(fma(b, widen(sin[d]), a * widen(cos[d])), like)
        upper = fma(a, widen(sin[half + d]), b * widen(cos[half + d]))
        out[half + d] = narrow(upper, like)


@numba.njit(nogil=True, error_model="numpy", cache=True)
def rotate_store(
    qkv_at, bias_at, q_norm_at, k_norm_at, eps, cos_at, sin_at, q_at, keys_at, values_at,
    n, heads, kv_heads, dim, capacity, start, first, last, like,
):  # fmt: skip
    """Queries and keys of the rows from ``first`` to before ``last`` of ``qkv [n, Hq + 2 * Hkv,
    D]``, rotated, to ``q [Hkv, G * n, D]`` and to the slots from ``start`` on of ``keys [Hkv,
    capacity, D]``; values to ``values``.

    ``bias [Hq + 2 * Hkv, D]`` and the norms ``[D]`` of queries and keys are left out where their
    address is 0. ``cos, sin [n, D]``.
    """
    every, group = heads + 2 * kv_heads, heads // kv_heads
    qkv = carray(pointer(qkv_at, like), (n, every, dim))
    bias = carray(pointer(bias_at, like), (every, dim))
    q_norm, k_norm = carray(pointer(q_norm_at, like), dim), carray(pointer(k_norm_at, like), dim)
    cos, sin = carray(pointer(cos_at, like), (n, dim)), carray(pointer(sin_at, like), (n, dim))
    q = carray(pointer(q_at, like), (kv_heads, group * n, dim))
    keys = carray(pointer(keys_at, like), (kv_heads, capacity, dim))
    values = carray(pointer(values_at, like), (kv_heads, capacity, dim))
    part = np.empty(LANES, np.float32)
    for i in range(first, last):
        for h in range(every):
            row = qkv[i, h]
            if bias_at:
                for d in range(dim):
                    row[d] = narrow(widen(row[d]) + widen(bias[h, d]), like)
            if q_norm_at and h < heads + kv_heads:
                norm, scale = q_norm if h < heads else k_norm, _inverse_rms(row, eps, part)
                for d in range(dim):
                    row[d] = narrow(widen(row[d]) * scale * widen(norm[d]), like)
            if h < heads:
                _rotate(row, cos[i], sin[i], q[h // group, h % group * n + i], like)
            elif h < heads + kv_heads:
                _rotate(row, cos[i], sin[i], keys[h - heads, start + i], like)
            else:
                copy(row, values[h - heads - kv_heads, start + i])


@numba.njit(nogil=True, error_model="numpy")
def _to_float(stored, out):
    for i in range(stored.size):
        out[i] = widen(stored[i])


@numba.njit(nogil=True, error_model="numpy")
def _softmax(scores_at, far, top, top_at, total, total_at, slots, lanes):
    """Scores ``[slots, lanes]`` become exp(score - top of its lane), ``total [lanes]`` their sum
    and ``far [lanes]``'s, the score of everything farther away.
    """
    for l in range(lanes):
        top[l] = far[l]
    for l in range(0, lanes, LANES):
        top_lanes(scores_at + 4 * l, 4 * lanes, slots, top_at + 4 * l)
    for l in range(lanes):
        hidden = far[l] == np.float32(-np.inf)
        far[l] = np.float32(0.0) if hidden else _exp(far[l] - top[l])
        total[l] = far[l]
    for l in range(0, lanes, LANES):
        weigh_lanes(scores_at + 4 * l, 4 * lanes, slots, top_at + 4 * l, total_at + 4 * l)


@numba.njit(nogil=True, error_model="numpy")
def read_part(
    q_at, keys_at, values_at, hidden_at, far_lse_at, scratch_at, read_at,
    n, heads, kv_heads, dim, capacity, first, tail, end, all_lanes, scale, h, lane, lanes, like,
):  # fmt: skip
    """What :func:`attend` reads for key head ``h`` and the ``lanes`` lanes from ``lane`` on, of
    ``all_lanes``; which lanes are taken together changes no bit.

    Args:
        read_at: float32 ``[dim + 3, lanes]``: sums of values by exp(score - top), their tops, the
            sums of these exponentials, and how much of those everything farther away is.
    """
    group, slots = heads // kv_heads, end - first
    rows, block = min(group * n - lane, lanes), slots * dim
    queries = carray(pointer(q_at, like), (kv_heads, group * n, dim))
    keys = carray(pointer(keys_at, like), (kv_heads, capacity * dim))
    values = carray(pointer(values_at, like), (kv_heads, capacity * dim))
    hidden = carray(pointer(hidden_at, np.float32(0)), (max(end - tail, 0), all_lanes))
    far_lse = carray(pointer(far_lse_at, np.float32(0)), (kv_heads, group * n))
    floats = carray(pointer(scratch_at, np.float32(0)), scratch_floats(slots, lanes, dim))
    of_lanes = carray(pointer(read_at, np.float32(0)), (dim + 3, lanes))
    wide = dim * lanes
    q_cols = floats[:wide].reshape((dim, lanes))
    scores, stored = floats[wide : wide + slots * lanes], floats[wide + slots * lanes :][:block]
    scores_at = scratch_at + 4 * wide
    stored_at = scores_at + 4 * slots * lanes
    # 1) Scores, with queries as columns.
    q_cols[:, rows:] = np.float32(0.0)
    for l in range(rows):
        for d in range(dim):
            q_cols[d, l] = widen(queries[h, lane + l, d]) * np.float32(scale)
    _to_float(keys[h, first * dim : end * dim], stored)
    products(scratch_at, stored_at, scores_at, dim, lanes, 1, dim, slots)
    for s in range(end - tail):
        for l in range(lanes):
            scores[(tail - first + s) * lanes + l] += hidden[s, lane + l]
    # 2) Probabilities.
    top, total, far = of_lanes[dim], of_lanes[dim + 1], of_lanes[dim + 2]
    far[:] = np.float32(-np.inf)
    if far_lse_at:
        copy(far_lse[h, lane : lane + rows], far)
    top_at = read_at + 4 * wide
    _softmax(scores_at, far, top, top_at, total, top_at + 4 * lanes, slots, lanes)
    # 3) Values.
    _to_float(values[h, first * dim : end * dim], stored)
    products(scores_at, stored_at, read_at, slots, lanes, dim, 1, dim)


@numba.njit(nogil=True, error_model="numpy")
def write_part(read_at, out_at, far_at, n, heads, kv_heads, dim, h, lane, lanes, like):
    """What :func:`read_part` has read, and what was read elsewhere, as the attention's rows."""
    group = heads // kv_heads
    out = carray(pointer(out_at, like), (n, heads, dim))
    far_out = carray(pointer(far_at, like), (kv_heads, group * n, dim))
    read = carray(pointer(read_at, np.float32(0)), (dim + 3, lanes))
    for l in range(min(group * n - lane, lanes)):
        g, i = (lane + l) // n, (lane + l) % n
        far, total = read[dim + 2, l], read[dim + 1, l]
        for d in range(dim):
            v = read[d, l]
            if far > np.float32(0.0):
                v = fma(far, widen(far_out[h, lane + l, d]), v)
            out[i, h * group + g, d] = narrow(v / total, like)


@numba.njit(nogil=True, error_model="numpy")
def merge_parts(read_at, step, chunks_at, most, n, dim, lane, lanes):
    """Into the first of ``most + 1`` results of :func:`read_part`, ``step`` bytes apart: that of a
    row's last positions, and those of the chunks before, of which each row takes its first
    ``chunks [n]``, in order. A chunk that a row does not take adds an exact zero.
    """
    chunks = carray(pointer(chunks_at, np.int64(0)), n)
    near = carray(pointer(read_at, np.float32(0)), (dim + 3, lanes))
    top, total, share = np.empty(lanes, np.float32), np.zeros(lanes, np.float32), near[dim + 2]
    copy(near[dim], top)
    taken = np.empty(lanes, np.int64)
    for l in range(lanes):
        taken[l] = chunks[(lane + l) % n]
    for c in range(1, most + 1):
        part = carray(pointer(read_at + c * step, np.float32(0)), (dim + 3, lanes))
        for l in range(lanes):
            if c <= taken[l]:
                top[l] = max(top[l], part[dim, l])
    read = np.zeros((dim, lanes), np.float32)
    for c in range(1, most + 2):  # the last positions come last
        own = c > most
        part = carray(pointer(read_at + (0 if own else c) * step, np.float32(0)), (dim + 3, lanes))
        for l in range(lanes):
            known = own or c <= taken[l]
            share[l] = _exp(part[dim, l] - top[l]) if known else np.float32(0.0)
            total[l] = fma(share[l], part[dim + 1, l], total[l])
        for d in range(dim):
            for l in range(lanes):
                read[d, l] = fma(share[l], part[d, l], read[d, l])
    for d in range(dim):
        copy(read[d], near[d])
    copy(total, near[dim + 1])
    share[:] = np.float32(0.0)


@numba.njit(nogil=True, error_model="numpy", cache=True)
def attend(
    q_at, keys_at, values_at, out_at, hidden_at, far_at, far_lse_at, scratch_at,
    n, heads, kv_heads, dim, capacity, first, tail, end, lanes, scale, like,
):  # fmt: skip
    """``out [n, Hq, D]``: what the queries ``q [Hkv, G * n, D]`` read in the slots from ``first``
    to ``end`` of ``keys, values [Hkv, capacity, D]``.

    Args:
        hidden_at: float32 ``[end - tail, lanes]``, added to the scores of the slots from ``tail``
            on (0 or -inf); a lane sees all slots before.
        far_at: ``[Hkv, G * n, D]`` with its log-sum-exp ``far_lse`` float32 ``[Hkv, G * n]``, or
            0: what each lane has read elsewhere; it joins as one more key. -inf: nothing.
        scratch_at: float32, see :func:`scratch_floats`, aligned to 64 bytes.
    """
    read_at = scratch_at + 4 * scratch_floats(end - first, lanes, dim)
    for h in range(kv_heads):
        read_part(
            q_at, keys_at, values_at, hidden_at, far_lse_at, scratch_at, read_at,
            n, heads, kv_heads, dim, capacity, first, tail, end, lanes, scale, h, 0, lanes, like,
        )  # fmt: skip
        write_part(read_at, out_at, far_at, n, heads, kv_heads, dim, h, 0, lanes, like)


@numba.njit(nogil=True, error_model="numpy")
def scratch_floats(slots, lanes, dim):
    """Floats of scratch memory of :func:`read_part`: queries as columns, scores, keys or values of
    one head. :func:`attend` takes ``(dim + 3) * lanes`` more behind them, for what is read.
    """
    return dim * lanes + slots * (lanes + dim)
