"""Compile the kernels of attention by position to machine code for several GPUs; needs none."""

from triton import compile as compiled
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from specdemo.engine.graphs import kernel

HEAD = {64: 3, 128: 4}  # head dimension: query heads that share a key head
FIXED = dict(NEAR=32, TILE=64, CHUNK=256, QUERIES=16)
CARDS = (80, 90)  # A100, H100 and H200


def machine_code(fn, dim, out, more, card):
    values = dict(GROUP=HEAD[dim], DIM=dim, PAD=dim, PRECISION="tf32", **FIXED, **more)
    types = dict.fromkeys(("q_at", "k_at", "v_at"), "*bf16")
    types |= dict.fromkeys(("length_at", "depth_at", "path_at"), "*i64")
    types |= {"part_at": "*fp32", "sums_at": "*fp32", "out_at": out}
    types |= {"scale": "fp32", "width": "i32", "slots": "i32"}
    signature = {n: "constexpr" if n in values else types[n] for n in fn.arg_names}
    source = ASTSource(fn=fn, signature=signature, constexprs=values)
    return compiled(source, target=GPUTarget("cuda", card, 32))


if __name__ == "__main__":
    for card in CARDS:
        for dim in HEAD:
            far = machine_code(kernel._far_kernel, dim, "*fp32", {}, card)
            near = machine_code(kernel._near_kernel, dim, "*bf16", {"LONGEST": 16}, card)
            for made in (far, near):
                # tensor cores, no float64, and room in the smallest shared memory
                assert "mma" in made.asm["ptx"] and ".f64" not in made.asm["ptx"]
                assert len(made.asm["cubin"]) > 0 and made.metadata.shared < 99 * 1024
    print("compiled")
