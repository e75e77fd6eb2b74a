"""A decoder's whole pass in one call: the kernels of :mod:`.kernels` and the products of
:mod:`.dots`, one after the other for all layers, shared out among threads without coming back to
Python.

A pass is a row of stages, each cut into parts. A thread takes the next part that nobody has, and
goes on to the next stage when all parts of this one are done; so a thread that comes late, or not
at all, holds nobody up. No part's result depends on who computes it.
"""

# mypy: disable-error-code="no-untyped-def"

import numba
import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from .dots import INT4, group_sums, product
from .kernels import (
    add_norm,
    copy,
    merge_parts,
    read_part,
    rotate_store,
    scratch_floats,
    silu_multiply,
    write_part,
)
from .vectors import CPU_FEATURES, LANES, pointer, size_of

__all__ = ["CHUNK", "COUNTERS", "FIELDS", "LAYER_FIELDS", "STAGES", "WIDE", "run_pass"]

COUNTERS = 16  # int64 of a stage's two counters, which have cache lines of their own
STAGES = 9  # of a layer; after the last one two more
CHUNK = 256  # slots of a far part; as many as fit a core's cache, and enough parts for all threads
WIDE = 3 * LANES  # lanes of a far part, whose keys and values are read once for all of them
# What a job is, in order; ``*_at`` are addresses.
FIELDS = (
    "layers_at", "layers", "counters_at", "n", "size", "inner", "heads", "kv_heads", "dim",
    "capacity", "start", "first", "tail", "end", "lanes", "x_at", "delta_at", "normed_at",
    "qkv_at", "q_at", "attended_at", "gate_up_at", "gated_at", "cos_at", "sin_at", "keys_at",
    "values_at", "layer_bytes", "hidden_at", "scratch_at", "scratch_bytes", "final_norm",
    "taps_at", "tap_step", "head", "head_scales", "head_kind", "head_outs", "logits_at",
    "far_chunks", "chunks_at", "parts_at",
)  # fmt: skip
# Of a layer: norms and biases, 0 for none; where its output goes among the taps, -1 for nowhere;
# then each product's weights, scales and kind.
LAYER_FIELDS = 6 + 3 * 4


@intrinsic
def _add(context, address, more):
    """Add to the int64 at ``address`` as one step; what it was."""

    def build(target, b, signature, arguments):
        at = b.inttoptr(arguments[0], ir.PointerType(ir.IntType(64)))
        return b.atomic_rmw("add", at, arguments[1], "acq_rel")

    return types.int64(types.int64, types.int64), build


@intrinsic
def _look(context, address):
    """The int64 at ``address``, with all that was written before it was."""

    def build(target, b, signature, arguments):
        at = b.inttoptr(arguments[0], ir.PointerType(ir.IntType(64)))
        return b.load_atomic(at, "acquire", 8)

    return types.int64(types.int64), build


@intrinsic
def _pause(context):
    """Let a core's other thread, or its power budget, have a moment."""

    def build(target, b, signature, arguments):
        if "sse2" in CPU_FEATURES:
            f = ir.FunctionType(ir.VoidType(), [])
            b.call(cgutils.get_or_insert_function(b.module, f, "llvm.x86.sse2.pause"), [])
        return target.get_dummy_value()

    return types.void(), build


@numba.njit(nogil=True, error_model="numpy")
def _join(counter, done, parts):
    """Wait until all parts are done, of which the caller did ``done``."""
    if done:
        _add(counter + 64, done)
    while _look(counter + 64) < parts:
        _pause()


@numba.njit(nogil=True, error_model="numpy")
def _product(
    counter, w, scales, kind, x, out, n, k, outs, gated, scratch, next_w, like, numbers
):  # fmt: skip
    """A stage: ``out [n, outs] = x [n, k] @ weights.T``, and where ``gated`` is not 0 ``gated [n,
    outs / 2] = silu(gate) * up`` of its halves. A thread that has made a part of both goes on with
    it: rows come slowly from another core. A part is taken before the one in hand is begun, so that
    its weights can be on their way; behind the last one come those at ``next_w``.
    """
    vectors, sides = outs // LANES, 2 if gated else 1
    of_side = vectors // sides
    # enough parts to share them out evenly, each long enough to be worth taking
    size = 8 if of_side >= 128 else 4
    parts, done = (of_side + size - 1) // size, 0
    vector = k * (32 if numbers is None else 8 if kind == INT4 else 16)  # bytes of its weights
    part = _add(counter, 1)
    while part < parts:
        following = _add(counter, 1)
        if numbers is not None:
            if kind == INT4 and not done:
                group_sums(x, scratch, n, k, like)
        first = part * size
        last = min(first + size, of_side)
        for side in range(sides):
            skip, after = side * of_side, w + following * size * vector
            if side + 1 < sides:
                after = w + (of_side + first) * vector
            elif following >= parts:
                after = next_w
            product(
                kind, w, scales, x, scratch, out, n, k, outs, skip + first, skip + last, after,
                like, numbers,
            )  # fmt: skip
        if gated:
            silu_multiply(out, gated, n, outs // 2, first * LANES, last * LANES, like)
        done += 1
        part = following
    _join(counter, done, parts)


@numba.njit(nogil=True, error_model="numpy")
def _norm(counter, x, delta, weight, out, n, size, eps, taps, tap_step, like):
    """A stage: ``x += delta`` and its norm; ``taps`` [n, tap_step] gets ``x``, where it is not
    0.
    """
    width, done = size_of(like), 0
    while True:
        i = _add(counter, 1)
        if i >= n:
            break
        row = i * size * width
        add_norm(x + row, delta + row if delta else 0, weight, out + row, 1, size, eps, like)
        if taps:
            source = carray(pointer(x + row, like), size)
            copy(source, carray(pointer(taps + i * tap_step * width, like), size))
        done += 1
    _join(counter, done, n)


@numba.njit(nogil=True, error_model="numpy")
def _rotate(
    counter, qkv, bias, q_norm, k_norm, eps, cos, sin, q, keys, values, n, heads, kv_heads, dim,
    capacity, start, like,
):  # fmt: skip
    """A stage: :func:`.kernels.rotate_store`, a row a part."""
    done = 0
    while True:
        i = _add(counter, 1)
        if i >= n:
            break
        rotate_store(
            qkv, bias, q_norm, k_norm, eps, cos, sin, q, keys, values, n, heads, kv_heads, dim,
            capacity, start, i, i + 1, like,
        )  # fmt: skip
        done += 1
    _join(counter, done, n)


@numba.njit(nogil=True, error_model="numpy")
def _attend_far(
    counter, q, keys, values, attended, hidden, scratch, n, heads, kv_heads, dim, capacity, first,
    tail, end, lanes, scale, most, chunks, results, like,
):  # fmt: skip
    """Two stages: attention where rows also read the first ``most`` chunks of
    :data:`CHUNK` slots, of which row ``i`` takes ``chunks[i]``. A part is some lanes of a key head
    in a chunk, or in the slots from ``first`` on; the second stage merges them. ``results`` has
    room for all of :func:`.kernels.read_part`.
    """
    groups, nothing = (lanes + WIDE - 1) // WIDE, np.int64(0)
    step = 4 * kv_heads * lanes * (dim + 3)
    parts, done = (most + 1) * kv_heads * groups, 0
    while True:
        i = _add(counter, 1)
        if i >= parts:
            break
        chunk, h, lane = i // groups // kv_heads, i // groups % kv_heads, i % groups * WIDE
        to = results + chunk * step + 4 * (h * lanes + lane) * (dim + 3)
        begin, seen, stop = first, tail, end
        if chunk:
            begin, stop = (chunk - 1) * CHUNK, chunk * CHUNK
            seen = stop
        read_part(
            q, keys, values, hidden, nothing, scratch, to, n, heads, kv_heads, dim, capacity, begin,
            seen, stop, lanes, scale, h, lane, min(lanes - lane, WIDE), like,
        )  # fmt: skip
        done += 1
    _join(counter, done, parts)
    counter += 128
    parts, done = kv_heads * groups, 0
    while True:
        i = _add(counter, 1)
        if i >= parts:
            break
        h, lane = i // groups, i % groups * WIDE
        size = min(lanes - lane, WIDE)
        read = results + 4 * (h * lanes + lane) * (dim + 3)
        merge_parts(read, step, chunks, most, n, dim, lane, size)
        write_part(read, attended, nothing, n, heads, kv_heads, dim, h, lane, size, like)
        done += 1
    _join(counter, done, parts)


@numba.njit(nogil=True, error_model="numpy")
def _attend(
    counter, q, keys, values, attended, hidden, scratch, n, heads, kv_heads, dim, capacity, first,
    tail, end, lanes, scale, most, chunks, results, like,
):  # fmt: skip
    """A stage: :func:`.kernels.attend`, a vector of lanes of a key head a part; two stages where
    rows read far slots, see :func:`_attend_far`.
    """
    if most:
        _attend_far(
            counter, q, keys, values, attended, hidden, scratch, n, heads, kv_heads, dim, capacity,
            first, tail, end, lanes, scale, most, chunks, results, like,
        )  # fmt: skip
        return
    # no literals, for each of which Numba compiles what is called anew
    size, nothing = np.int64(LANES), np.int64(0)
    parts, done = kv_heads * (lanes // LANES), 0
    read = scratch + 4 * scratch_floats(end - first, size, dim)
    while True:
        i = _add(counter, 1)
        if i >= parts:
            break
        h, lane = i % kv_heads, i // kv_heads * LANES
        read_part(
            q, keys, values, hidden, nothing, scratch, read, n, heads, kv_heads, dim, capacity,
            first, tail, end, lanes, scale, h, lane, size, like,
        )  # fmt: skip
        write_part(read, attended, nothing, n, heads, kv_heads, dim, h, lane, size, like)
        done += 1
    _join(counter, done, parts)


@numba.njit(nogil=True, error_model="numpy")
def _weights_after(table, layer, layers, step, head):
    """Address of the weights of the product that follows product ``step`` of ``layer``, 0 behind
    the head.
    """
    if layer == layers:
        return np.int64(0)
    if step < 3:
        return table[layer][9 + 3 * step]
    return table[layer + 1][6] if layer + 1 < layers else head


@numba.njit(nogil=True, error_model="numpy", cache=True)
def run_pass(job_at, thread, eps, scale, like, numbers):
    """One thread's share of a pass.

    Args:
        job_at: int64 of :data:`FIELDS`, counters 0 at the beginning; without layers it is the
            head's product of the rows ``normed [n, size]`` alone.
        thread: its number, which says where its scratch memory is.
        numbers: None where weights are bfloat16, else an int8; each is code of its own.
    """
    job = carray(pointer(job_at, np.int64(0)), 42)
    layers, counter, n, size, inner = job[1], job[2], job[3], job[4], job[5]
    heads, kv_heads, dim, capacity, start = job[6], job[7], job[8], job[9], job[10]
    first, tail, end, lanes = job[11], job[12], job[13], job[14]
    x, delta, normed, qkv, q, attended = job[15], job[16], job[17], job[18], job[19], job[20]
    gate_up, gated, cos, sin, hidden = job[21], job[22], job[23], job[24], job[28]
    scratch = job[29] + thread * job[30]
    final_norm, taps, tap_step = job[31], job[32], job[33]
    table = carray(pointer(job[0], np.int64(0)), (max(layers, 1), 18))
    width, tap = size_of(like), np.int64(0)
    # the head counts as a layer of one step; all products are one call, which is compiled once
    for layer in range(layers + 1):
        t = table[min(layer, layers - 1)]
        keys, values = job[25] + layer * job[27], job[26] + layer * job[27]
        for step in range(4 if layer < layers else 1):
            w, scales, kind = t[6 + 3 * step], t[7 + 3 * step], t[8 + 3 * step]
            source, out, k, outs, gate = normed, delta, size, size, np.int64(0)
            if step == 0 or step == 2:
                if layers:
                    before = 0 if layer + step == 0 else delta
                    weight = t[4] if step else (t[0] if layer < layers else final_norm)
                    to = 0 if step else tap
                    _norm(counter, x, before, weight, normed, n, size, eps, to, tap_step, like)
                    counter += 128
            if layer == layers:
                w, scales, kind, outs, out = job[34], job[35], job[36], job[37], job[38]
            elif step == 0:
                out, outs = qkv, (heads + 2 * kv_heads) * dim
            elif step == 1:
                _rotate(
                    counter, qkv, t[1], t[2], t[3], eps, cos, sin, q, keys, values, n, heads,
                    kv_heads, dim, capacity, start, like,
                )  # fmt: skip
                counter += 128
                _attend(
                    counter, q, keys, values, attended, hidden, scratch, n, heads, kv_heads, dim,
                    capacity, first, tail, end, lanes, scale, job[39], job[40], job[41], like,
                )  # fmt: skip
                counter += 256
                source, k = attended, heads * dim
            elif step == 2:
                out, outs, gate = gate_up, 2 * inner, gated
            else:
                source, k = gated, inner
            if w:
                _product(
                    counter, w, scales, kind, source, out, n, k, outs, gate, scratch,
                    _weights_after(table, layer, layers, step, job[34]), like, numbers,
                )  # fmt: skip
            counter += 128
        tap = taps + t[5] * width if t[5] >= 0 else 0
