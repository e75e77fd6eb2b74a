"""How much memory a pair needs in a dtype, and whether this machine has it: arithmetic over
:mod:`.shapes`, before anything is fetched.

What is counted follows the code. On a CPU the library's model stays beside the products' own layout
of every matrix (:mod:`.linear`), and a drafter has a layout of the target's head for itself; on a
GPU weights are there once.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import UserError
from .fetch import find_drafter, find_target
from .pairs import Pair
from .shapes import Shape, listed_shapes, shape_of
from .spread import AUTO

# Cache slots of a lane: the bucket of the longest answer that the page offers, behind a prompt of
# up to 960 tokens. Measuring a target's passes takes two such caches, too.
SLOTS = 2048
ROWS = 64  # of the widest pass (engine.cost.WIDTHS)
LOGITS = 4  # copies of the widest pass's logits in float32, while tokens are picked from them
SPARE = 1.15  # an estimate is right within 15 %, see tests/test_models_needs.py
# Python, the libraries and the compiled code (measured with SmolLM2-135M on a CPU)
PROGRAM = 750_000_000
FLOAT = {"bf16": 2, "fp16": 2, "fp32": 4}
# Bytes of a matrix's weight. int4 keeps 4 bits and two float32 for every 32 weights, its head 8
# bits and one; nf4 with double quantisation keeps 4 bits, a byte for every 64 weights and a float32
# for 256 of those (QLoRA, arXiv 2305.14314, section 3).
INT4_BODY, INT4_HEAD = 4 / 8 + 8 / 32, 1 + 4 / 32
BITS = {"4bit": 4 / 8 + 1 / 64 + 4 / (64 * 256), "8bit": 1.0}

# what a dtype is called elsewhere, by models.yaml's name
NAMED = {name: name for name in (*FLOAT, "int4", *BITS)} | {
    **{"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"},
    **{"torch.bfloat16": "bf16", "torch.float32": "fp32", "torch.float16": "fp16"},
}

Place = Literal["cpu", "gpu"]
Verdict = Literal["fits", "fits once other programs free memory", "does not fit", "not known"]


@dataclass(frozen=True)
class Memory:
    """Bytes of one kind of memory: the machine's, or a GPU's."""

    name: str
    place: Place
    total: int
    free: int


@dataclass(frozen=True)
class Needs:
    """Bytes that a pair takes.

    Attributes:
        target, drafters: their weights, in every layout that is kept. caches: keys and values of
            both lanes, and what drafters keep of the text. logits: of the widest pass. loading:
            working copies that are gone afterwards.
        mapped: of the target's, pages of its files that the system drops where memory is short
            (transformers maps files of the same dtype; products read their own layout).
    """

    target: int
    drafters: int
    caches: int
    logits: int
    loading: int
    program: int = 0
    mapped: int = 0

    @property
    def total(self) -> int:
        """At most at one time: the working copies go before there are caches and logits."""
        return self.kept + max(0, self.loading - self.caches - self.logits)

    @property
    def kept(self) -> int:
        """Once the working copies are gone."""
        return self.target + self.drafters + self.program + self.caches + self.logits


@dataclass(frozen=True)
class Fit:
    """Whether a pair fits in a dtype.

    Attributes:
        needs: None where nobody knows the sizes.
        memory: where it would be.
        without: kinds of drafters whose sizes nobody knows, which are not counted.
    """

    dtype: str
    needs: Needs | None
    memory: Memory
    verdict: Verdict
    without: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One line."""
        if self.needs is None:
            return f"{self.dtype}: its sizes are known once its files are here"
        m, needs = self.memory, self.needs
        about = gigabytes(needs.total)
        if needs.total > m.total >= needs.total - needs.mapped:  # no pass reads those pages
            about = (
                f"{gigabytes(needs.total - needs.mapped)}, beside {gigabytes(needs.mapped)} of its"
                " files' pages, which the system drops"
            )
        elif gigabytes(needs.kept) != about:
            about += f" while it loads and {gigabytes(needs.kept)} then"
        without = "".join(f", its {kind} drafter left out" for kind in self.without)
        without += ", computed and not measured" if m.place == "gpu" else ""
        return (
            f"{self.dtype}: {self.verdict}: about {about}{without}, of"
            f" {gigabytes(m.total)} ({gigabytes(m.free)} free) of {m.name}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, bytes each."""
        parts = None if self.needs is None else vars(self.needs) | {"total": self.needs.total}
        return {"dtype": self.dtype, "verdict": self.verdict, "memory": self.memory.name} | {
            "needs": parts,
            "text": self.text,
        }


@dataclass(frozen=True)
class Shapes:
    """A pair's sizes, None where nobody knows them; drafters by their kind."""

    target: Shape | None
    drafters: dict[str, Shape | None] = field(default_factory=dict)


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB"


def fits(pair: Pair, memories: list[Memory] | None = None, everywhere: bool = False) -> list[Fit]:
    """Of every dtype that the pair has here, whether it fits into the memory it would be loaded
    into: the first GPU's, or the machine's. Touches no network.

    Args:
        memories: default: this machine's. everywhere: each of them.
    """
    memories = machine_memory() if memories is None else memories
    shapes = pair_shapes(pair)
    return [
        _fit(shapes, dtype, memory)
        for dtype in usable_dtypes(pair, memories)
        for memory in (_places(dtype, memories) if everywhere else _able(dtype, memories)[:1])
    ]


def _places(dtype: str, memories: list[Memory]) -> list[Memory]:
    """Those that a target in that dtype can be in, and where there are several, all of them."""
    able = _able(dtype, memories)
    return able if len(able) < 2 or dtype == "int4" else [*able, together(able)]


def together(memories: list[Memory]) -> Memory:
    """What a target has that is spread over all of them (see :mod:`.spread`)."""
    if len(memories) < 2:
        return memories[0]
    total, free = (sum(getattr(m, key) for m in memories) for key in ("total", "free"))
    return Memory("all of it together (--device auto)", memories[0].place, total, free)


def _able(dtype: str, memories: list[Memory]) -> list[Memory]:
    """Those that a target in that dtype can be in, the usual one first."""
    return [m for m in memories if m.place == "cpu" or dtype != "int4"]


def usable_dtypes(pair: Pair, memories: list[Memory]) -> list[str]:
    """The dtypes of a pair that this machine has what they need for, but for the memory."""
    bits = importlib.util.find_spec("bitsandbytes") is not None
    gpu = memories[0].place == "gpu"  # where targets go by themselves
    return [d for d in pair.dtypes if (bits if d in BITS else d != "int4" or not gpu)]


def needs_on_a_gpu(pair: Pair) -> dict[str, Needs]:
    """By dtype, what it takes on a GPU, whether there is one or not."""
    shapes = pair_shapes(pair)
    if shapes.target is None:
        return {}
    able = [dtype for dtype in pair.dtypes if dtype != "int4"]
    return {dtype: needs_of(shapes.target, shapes.drafters, dtype, "gpu") for dtype in able}


def refuse_too_large(pair: Pair, dtype: str | None = None, device: str | None = None) -> None:
    """Raises UserError: in that dtype (default: the machine's) the pair needs more than there is,
    whatever else runs.

    Args:
        dtype: by any of its names. device: default: where targets go by themselves.
    """
    if pair.engine is not None or (dtype is not None and str(dtype) not in NAMED):
        return
    dtype = None if dtype is None else NAMED[str(dtype)]
    memories = machine_memory()
    if device == AUTO and dtype != "int4":
        memories = [together(memories)]
    elif device is not None and not str(device).startswith("cuda"):
        memories = memories[-1:]
    name = dtype or default_name(memories[0].place)
    found = _fit(pair_shapes(pair), name, _able(name, memories)[0])
    if found.verdict != "does not fit":
        return
    others = [fit.dtype for fit in fits(pair, memories) if fit.verdict != "does not fit"]
    hint = (
        f"choose dtype {' or '.join(others)}, or a smaller pair"
        if others
        else "choose a smaller pair"
    )
    raise UserError(f"{pair.title} in {found.text}; {hint}.")


def default_name(place: Place) -> str:
    """What a target is loaded in if nothing is said, by the names of models.yaml."""
    import torch

    from .load import default_dtype

    if place == "gpu" and not torch.cuda.is_available():
        return "bf16"  # a GPU that is thought of
    return "bf16" if default_dtype("cuda" if place == "gpu" else "cpu").itemsize == 2 else "fp32"


def _fit(shapes: Shapes, dtype: str, memory: Memory) -> Fit:
    if shapes.target is None:
        return Fit(dtype, None, memory, "not known")
    needs = needs_of(shapes.target, shapes.drafters, dtype, memory.place)
    without = tuple(kind for kind, shape in shapes.drafters.items() if shape is None)
    return Fit(dtype, needs, memory, _verdict(needs, memory), without)


def _verdict(needs: Needs, memory: Memory) -> Verdict:
    if needs.total - needs.mapped > memory.total:
        return "does not fit"
    return "fits" if SPARE * needs.total <= memory.free else "fits once other programs free memory"


# -- the arithmetic --------------------------------------------------------------------------------


def needs_of(
    target: Shape, drafters: Mapping[str, Shape | None], dtype: str, place: Place
) -> Needs:
    """What a target and its drafters take in a dtype on a CPU or a GPU."""
    size = FLOAT.get(dtype) or FLOAT[default_name(place)]
    packs = place == "cpu" and dtype not in BITS and (dtype == "int4" or _packs(size))
    head = target.vocabulary * target.hidden
    weights = target.parameters * size
    if dtype in BITS:
        weights = round(target.body * BITS[dtype]) + target.embedded * size
    packed = target.body * size + head * size
    if dtype == "int4":
        packed = round(target.body * INT4_BODY + head * INT4_HEAD)
    drafting, caches = 0, 2 * target.cache_bytes(SLOTS, size)
    for kind, drafter in drafters.items():
        if drafter is not None:
            drafting += _drafter_bytes(drafter, kind, size, place == "cpu" and _packs(size))
            caches += drafter.cache_bytes(SLOTS, size)
    return Needs(
        target=weights + packed * packs,
        drafters=drafting,
        caches=caches,
        logits=ROWS * target.vocabulary * 4 * LOGITS,
        loading=_loading(target, dtype, size),
        program=PROGRAM if place == "cpu" else 0,
        mapped=weights if packs and dtype == "bf16" else 0,
    )


def _drafter_bytes(drafter: Shape, kind: str, size: int, packs: bool) -> int:
    """Weights, and where products have a layout of their own, that of the body and of the head,
    which may be the target's. A diffusion language model keeps the layout alone in bf16.
    """
    weights = drafter.parameters * size
    if not packs:
        return weights
    packed = (drafter.body + drafter.vocabulary * drafter.hidden) * size
    if kind == "diffusion" and size == 2:
        return packed + drafter.vocabulary * drafter.hidden * size
    return weights + packed


def _loading(target: Shape, dtype: str, size: int) -> int:
    """Working copies: a layer and its fused form in float32, as the check at load makes them; or a
    layer expanded by bitsandbytes; or the head as numbers of 8 bits, three copies in float32.
    """
    layer = target.body // target.layers
    if dtype in BITS:
        return layer * (size + 4)
    copies = 3 * 4 * layer
    return max(copies, 3 * 4 * target.vocabulary * target.hidden) if dtype == "int4" else copies


def _packs(size: int) -> bool:
    """Whether products on this CPU have a layout of their own."""
    import torch

    from .linear import packs

    return packs("cpu", torch.bfloat16 if size == 2 else torch.float32)


# -- what a pair has -------------------------------------------------------------------------------


def pair_shapes(pair: Pair) -> Shapes:
    """From the files that are here, else from the list in models.yaml."""
    listed = listed_shapes()
    try:
        folder = find_target(pair)
    except UserError:
        folder = None
    hubs = [source["hub"] for source in pair.target if "hub" in source]
    target = shape_of(folder) if folder else None
    target = target or next((listed[hub] for hub in hubs if hub in listed), None)
    drafters = {kind: _drafter_shape(place, listed) for kind, place in pair.drafters.items()}
    return Shapes(target, drafters)


def _drafter_shape(place: str, listed: dict[str, Shape]) -> Shape | None:
    folder = find_drafter(place)
    found = shape_of(Path(folder)) if folder else None
    return found or listed.get(place.removeprefix("hub:").partition("@")[0])


# -- what the machine has --------------------------------------------------------------------------


def machine_memory() -> list[Memory]:
    """GPUs first, in their order, then the machine's own memory, by the least of its limits."""
    import torch

    gpus = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            gpus.append(Memory(torch.cuda.get_device_name(index), "gpu", total, free))
    return [*gpus, own_memory()]


def own_memory(cgroups: Path = Path("/sys/fs/cgroup")) -> Memory:
    """The machine's memory; in a container what its control group leaves of it."""
    import psutil

    found = psutil.virtual_memory()
    total, free = found.total, found.available
    for limit, used in _cgroup_limits(cgroups):
        total, free = min(total, limit), min(free, max(0, limit - used))
    return Memory("this machine's memory", "cpu", total, free)


def _cgroup_limits(cgroups: Path) -> Iterator[tuple[int, int]]:
    """Bytes allowed and used: version 2, version 1."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            yield int((cgroups / limit).read_text()), int((cgroups / used).read_text())
        except (OSError, ValueError):  # "max": no limit
            continue
