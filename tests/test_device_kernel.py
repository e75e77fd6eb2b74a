"""Attention by position, on a CPU under Triton's interpreter."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton", reason="Triton comes with torch on a GPU; pip install triton")

from device_rounds import finish, lane_of, rounds_of  # noqa: E402
from tiny import PROMPT, Proposes, engine_for, oracle  # noqa: E402
from tiny_models import make_tiny_target  # noqa: E402
from triton.runtime import interpreter  # noqa: E402

from specdemo.engine.attention import LayoutInvariantAttention  # noqa: E402
from specdemo.engine.graphs.attention import DoubleAttention, Rows  # noqa: E402
from specdemo.engine.graphs.kernel import PositionAttention  # noqa: E402
from specdemo.engine.graphs.state import packed_draft  # noqa: E402
from specdemo.engine.target import Target  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(autouse=True)
def rows_apart(monkeypatch):
    """A tensor core computes every row of a product alike; numpy's, which the interpreter takes,
    does not.
    """

    def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        product = (a.data[:, :, None] * b.data[None]).sum(1, dtype=d.data.dtype)
        return interpreter.TensorHandle(product + d.data, d.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)


HEADS, GROUP, DIM, WIDTH = 2, 3, 32, 16
LENGTHS = [0, 1, 31, 33, 63, 64, 190, 256, 300, 470]


def rows_of(length, parent, width=WIDTH):
    path = torch.tensor(packed_draft([1] * len(parent), parent, width))[:, 1:]
    on_path = path >= 0
    depth = on_path.sum(1) - 1
    return Rows(torch.tensor([length]), path, on_path, depth, torch.arange(width))


def made(length, dtype, slots=512, seed=0, width=WIDTH):
    rng = torch.Generator().manual_seed(seed)
    q = torch.randn(1, HEADS, GROUP * width, DIM, generator=rng).to(dtype) * 2
    kv = torch.full((2, HEADS, slots, DIM), 1e4, dtype=dtype)  # what nobody may read
    kv[:, :, : length + width] = torch.randn(2, HEADS, length + width, DIM, generator=rng).to(dtype)
    return q, *kv


TREE = [-1, 0, 0, 1, 1, 2, 5, 6, 7, 8, -1, 10, 11]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("length", LENGTHS)
def test_it_is_attention_to_one_rounding(dtype, length):
    """Against float64 over everything, and against the engine's layout-invariant attention."""
    q, k, v = made(length, dtype)
    rows = rows_of(length, TREE)
    ours = PositionAttention(GROUP).of(rows, 512)(q, k, v)
    exact = DoubleAttention(GROUP).of(rows, 512)(q.double(), k.double(), v.double())
    # a unit in the last place of bf16, and what float32 sums of a few hundred numbers leave
    room = exact.abs() * 2**-7 + 2e-4 if dtype == torch.bfloat16 else torch.tensor(3e-6)
    assert ((ours.double() - exact).abs() <= room).all()
    seen = rows.seen(512)[:, length : length + WIDTH]
    theirs = LayoutInvariantAttention(seen, length, 512, GROUP, dtype, rows.positions)
    # the far part of the engine's is rounded to bf16 before it is merged
    room = room.clamp(min=float(exact.abs().max()) * 2**-8) if dtype == torch.bfloat16 else room
    assert ((ours.double() - theirs(q, k[None], v[None]).double()).abs() <= room).all()


@pytest.mark.parametrize("length", LENGTHS)
def test_its_bits_depend_on_positions_alone(length):
    """The same nodes in other rows, beside other nodes, in a wider pass and in a larger cache."""
    q, k, v = made(length, torch.bfloat16)
    order = [10, 0, 2, 1, 4, 3, 11, 5, 6, 12, 7, 8, 9]  # old nodes in their new order
    place = {node: at for at, node in enumerate(order)} | {-1: -1}
    parent = [place[TREE[node]] for node in order]
    old = [0, *(node + 1 for node in order)]
    first = PositionAttention(GROUP).of(rows_of(length, TREE), 512)(q, k, v)
    first = first.view(HEADS, GROUP, WIDTH, DIM)[:, :, old]
    for width, slots in ((16, 512), (32, 512), (16, 2048)):
        moved_q, moved_k, moved_v = made(length, torch.bfloat16, slots, seed=1, width=width)
        moved_q = moved_q.view(HEADS, GROUP, width, DIM)
        moved_q[:, :, : len(old)] = q.view(HEADS, GROUP, WIDTH, DIM)[:, :, old]
        for moved, stored in ((moved_k, k), (moved_v, v)):
            moved[:, :length] = stored[:, :length]
            moved[:, length : length + len(old)] = stored[:, [length + row for row in old]]
        rows = rows_of(length, parent, width)
        moved_q = moved_q.reshape(1, HEADS, GROUP * width, DIM)
        second = PositionAttention(GROUP).of(rows, slots)(moved_q, moved_k, moved_v)
        second = second.view(HEADS, GROUP, width, DIM)[:, :, : len(old)]
        assert torch.equal(first, second)


def test_a_row_is_the_same_as_a_node_and_one_a_pass():
    """A chain of ten: each node's bits are those of a pass of its own, behind committed keys."""
    length, parent = 123, list(range(-1, 9))
    q, k, v = made(length, torch.bfloat16)
    chain = PositionAttention(GROUP).of(rows_of(length, parent), 512)(q, k, v)
    chain = chain.view(HEADS, GROUP, WIDTH, DIM)
    for row in range(10):
        alone = q.view(HEADS, GROUP, WIDTH, DIM)[:, :, [row] * WIDTH].reshape(q.shape)
        one = PositionAttention(GROUP).of(rows_of(length + row, []), 512)(alone, k, v)
        assert torch.equal(one.view(HEADS, GROUP, WIDTH, DIM)[:, :, 0], chain[:, :, row])


def test_a_target_writes_the_same_text_with_it():
    engine = engine_for(Target(make_tiny_target()))
    with pytest.MonkeyPatch.context() as patch:
        plain = finish(lane_of(engine, new=14))
        patch.setattr(engine, "rounds", rounds_of(engine.target, attention=PositionAttention(2)))
        assert finish(lane_of(engine, new=14)) == plain
        rng, make = random.Random(0), oracle(plain, len(PROMPT), 3)
        drafter = Proposes(lambda ids: [*make(ids), rng.randint(0, 127)])
        lane = lane_of(engine, "block", new=14, drafter=drafter)
        assert finish(lane) == plain and lane.accepted > 5


def test_many_query_heads_on_one_key_head_are_refused():
    with pytest.raises(ValueError, match="at most 16"):
        PositionAttention(17)


def test_it_compiles_for_gpus_that_are_not_here():
    """Into machine code with tensor cores, outside the interpreter and so in another process."""
    variables = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    root = Path(__file__).parent.parent
    path = os.pathsep.join([str(root), *filter(None, [variables.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(root / "tests" / "compile_kernels.py")],
        env=variables | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout.strip() == "compiled", done.stderr[-2000:]
