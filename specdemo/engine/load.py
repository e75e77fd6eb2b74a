"""Loading an engine: the target, what its passes cost here, and which widths compute the very same
numbers.
"""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from ..errors import UserError
from ..models.chat import prompt_ids
from .attention import LayoutInvariantAttention
from .lane import clock_now
from .target import Target

if TYPE_CHECKING:
    from ..models.load import Loaded
    from ..models.pairs import Pair

WIDTHS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
VERIFY_WIDTH = 16  # the width whose numerics the others must reproduce bit for bit
Progress = Callable[[str, "float | None"], None]


@dataclass
class Engine:
    """A loaded pair, ready to race.

    Attributes:
        cost: rows -> milliseconds of one target pass undisturbed, measured at load.
        one_row_ms: the same for the fastest way to decode plainly: one row, the library's masked
            attention kernel.
        widths: row counts whose logits are bitwise equal to those of ``VERIFY_WIDTH`` rows; the
            only ones a race uses.
        ar_width: the narrowest of them, used by the plain lane.
        lock: held by the one race that runs.
    """

    loaded: Loaded
    target: Target
    cost: dict[int, float] = field(default_factory=dict)
    one_row_ms: float = 0.0
    widths: list[int] = field(default_factory=lambda: [VERIFY_WIDTH])
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def tokenizer(self):
        return self.loaded.tokenizer

    @property
    def ar_width(self) -> int:
        return self.widths[0]

    def now(self) -> float:
        return clock_now(self.target.device)

    def width_for(self, rows: int) -> int:
        """The narrowest trusted width that holds ``rows``."""
        for width in self.widths:
            if rows <= width:
                return width
        raise UserError(
            f"A draft of {rows - 1} tokens is more than this engine verifies at once"
            f" ({self.widths[-1] - 1}); lower γ or the budget."
        )

    def row_ms(self, rows: int) -> float:
        """Expected milliseconds of a target pass with that many live rows: it could be padded to
        any wider one, so none of those costs less.
        """
        return min(self.cost[width] for width in self.widths if width >= self.width_for(rows))

    def encode(self, prompt: str) -> list[int]:
        """Token ids of one user message, see :func:`.models.chat.prompt_ids`."""
        return prompt_ids(self.tokenizer, prompt, self.loaded.pair.thinking)

    def vocab(self, ids: list[int]) -> dict[str, str]:
        """Each id's own text, for the vocabulary tables of events."""
        return {str(i): self.tokenizer.decode([i]) for i in dict.fromkeys(ids)}

    def hardware(self) -> str:
        """What this runs on, in words."""
        if self.target.device.type == "cuda":
            return torch.cuda.get_device_name(self.target.device)
        return f"{_cpu_name()}, {torch.get_num_threads()} threads"


def load_engine(
    pair: str | Pair = "smollm2-135m",
    dtype: str | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Engine:
    """Load a pair, by its id or as it is, and measure it. Takes a few seconds once the weights are
    in the cache.
    """
    from ..models.load import load_target
    from ..models.pairs import get_pair

    return make_engine(
        load_target(get_pair(pair) if isinstance(pair, str) else pair, dtype, device, progress),
        progress,
    )


def make_engine(loaded: Loaded, progress: Progress | None = None) -> Engine:
    """An engine on a target that is already in memory: checked against the library's own forward
    pass, then measured.
    """
    if loaded.quantized:
        raise UserError(
            f"The engine does not run {loaded.quantized} targets yet; choose dtype bf16."
        )
    say = progress or (lambda message, fraction: None)
    say("Preparing the target", None)
    target = Target(loaded.model)
    target.check_against(loaded.model)
    engine = Engine(loaded, target)
    say("Measuring one pass of the target", None)
    calibrate(engine)
    return engine


@torch.inference_mode()
def calibrate(
    engine: Engine, repeats: int = 7, seconds: float = 4.0, patience: float = 16.0
) -> None:
    """Measure the cost of every width and find the widths that agree bit for bit.

    The widths take turns, so that a slow moment hits them all; no third turn begins after
    ``seconds``. The least of a width's turns counts: whatever else runs on the machine while it
    loads, a browser that draws for one, only ever adds to a pass, and not to all of them in
    proportion. Every speed-up rests on these figures, so what looks disturbed is measured on for up
    to ``patience`` seconds more.
    """
    target = engine.target
    prompt = _ids(target, 37, 101, 160)  # long enough for every part of the attention to work
    cache = target.new_cache(len(prompt) + 2 * WIDTHS[-1])
    target.prefill(cache, prompt)
    samples: dict[tuple[str, int], list[float]] = {("layout_invariant", w): [] for w in WIDTHS} | {
        ("masked", 1): []
    }

    def take(kind: str, width: int) -> float:
        began = engine.now()
        nodes = 1 if width > 1 else 0
        target.verify(cache, prompt[0], prompt[1:2][:nodes], [-1][:nodes], width, attention=kind)[
            0
        ].max(-1).indices.tolist()
        return (engine.now() - began) * 1e3

    started = engine.now()
    for turn in range(repeats + 1):  # the first turn only warms up
        if turn > 2 and engine.now() - started > seconds:
            break
        for one, taken in samples.items():
            ms = take(*one)
            if turn:
                taken.append(ms)
    while (doubtful := _doubtful(samples)) and engine.now() - started < seconds + patience:
        for one in doubtful:
            samples[one].append(take(*one))
    engine.cost = {w: min(samples["layout_invariant", w]) for w in WIDTHS}
    # never quiet: at least no more than a wider pass, to which it could be padded
    for kind, width in doubtful:
        if kind == "layout_invariant":
            engine.cost[width] = min(engine.cost[w] for w in WIDTHS if w >= width)
    engine.one_row_ms = min(samples["masked", 1])
    engine.widths = equal_widths(target)


def _doubtful(samples: dict[tuple[str, int], list[float]]) -> list[tuple[str, int]]:
    """Passes whose least turn no second one confirms within a twentieth, or which seem a quarter
    dearer than a wider pass.
    """
    least = {one: sorted(taken)[:2] for one, taken in samples.items()}
    return [
        one
        for one, (first, second) in least.items()
        if second > 1.05 * first
        or first > 1.25 * min(ms for (_, width), (ms, _) in least.items() if width >= one[1])
    ]


def equal_widths(target: Target) -> list[int]:
    """Widths whose logits equal, bit for bit, those of ``VERIFY_WIDTH`` rows, however the rows are
    shared out between passes.

    Three tokens behind a prompt that ends just before the attention is first cut in two
    (``LayoutInvariantAttention.SHORT``) are read one a pass, as one chain, and as a tree beside a branch that is
    refused.
    """
    text = _ids(target, 91, 7, 3)
    prompt = _ids(target, 53, 29, LayoutInvariantAttention.SHORT - 2, spare=len(text))
    cache = target.new_cache(len(prompt) + len(text) + WIDTHS[-1])
    target.prefill(cache, prompt)

    def steps(width: int) -> torch.Tensor:
        cache.rollback(len(prompt))
        rows = []
        for token in text:
            rows.append(target.verify(cache, token, [], [], width)[0][0])
            cache.commit([])
        return torch.stack(rows)

    def block(width: int) -> torch.Tensor:
        cache.rollback(len(prompt))
        return target.verify(cache, text[0], text[1:], [-1, 0], width)[0]

    def tree(width: int) -> torch.Tensor:
        cache.rollback(len(prompt))
        return target.verify(cache, text[0], [*prompt[:2], *text[1:]], [-1, 0, -1, 2], width)[0][
            [0, 3, 4]
        ]

    reference = block(VERIFY_WIDTH)

    def agrees(width: int) -> bool:
        return (
            torch.equal(steps(width), reference)
            and (width < 3 or torch.equal(block(width), reference))
            and (width < 5 or torch.equal(tree(width), reference))
        )

    return [w for w in WIDTHS if w == VERIFY_WIDTH or agrees(w)]


def _ids(target: Target, step: int, first: int, count: int, spare: int = 0) -> list[int]:
    """Arbitrary token ids, no more than leave room for ``spare`` and the widest pass."""
    return [
        (step * i + first) % (target.vocab_size - 1)
        for i in range(min(count, target.max_positions - spare - WIDTHS[-1]))
    ]


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next(
                (line.split(":", 1)[1].strip() for line in file if line.startswith("model name")),
                "",
            )
    except OSError:
        name = ""
    flags = [f for f in ("AMX", "AVX512_BF16") if _has(f)]
    return " ".join(
        [
            name or platform.processor() or platform.machine(),
            *(["with " + ", ".join(flags)] if flags else []),
            f"({os.cpu_count()} cores)",
        ]
    )


def _has(flag: str) -> bool:
    check = {"AMX": "_is_amx_tile_supported", "AVX512_BF16": "_is_avx512_bf16_supported"}[flag]
    return bool(getattr(torch.cpu, check, lambda: False)())
