"""Measuring what passes cost here: the target's own cost curve and its trusted widths, at load, and
passes of a drafter, on demand.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ..errors import UserError
from ..hardware import clock_now
from ..models.decoder import KVCache
from .attention import COMPILED_SHORT, AttentionKind, LayoutInvariantAttention
from .cost import CONTEXT, VERIFY_WIDTH, WIDER, WIDTHS, CostModel, Measured
from .pace import SLOW
from .step import AnyTarget

if TYPE_CHECKING:
    from ..models.block_drafter import BlockDrafter
    from .engine import Engine

SECONDS = 1.5  # that measuring passes may take; what is not reached is interpolated
ANCHORS = (1, 8, 16, 32)  # the widths that are measured, beside the narrowest and the widest
FAR = 1900  # the longer of the two contexts that passes are measured behind
TURNS = 6  # at most, however fast passes are
AGREEMENT = 1.1  # a pass is known where two turns agree within this


class Ask(NamedTuple):
    """A pass to be measured."""

    kind: AttentionKind
    width: int
    context: int


@torch.inference_mode()
def calibrate(
    target: AnyTarget,
    widths: Sequence[int],
    threads: Sequence[int] = (),
    seconds: float = SECONDS,
) -> Measured:
    """Measure what passes cost with each number of threads, behind a short and a long context.

    The least of a pass's turns counts: whatever else runs only ever adds to it. The fewest threads
    come first, as other work disturbs those least; where more of them then take ``SLOW`` times as
    long, a core is busy, and they are said to cost the same. A wrong guess does not last: races
    correct the costs (:mod:`.pace`).

    Args:
        widths: those a race may use (see :func:`equal_widths`).
        threads: numbers of threads (default: those in force); the most compute afterwards.
        seconds: no pass begins after these, but for the fewest threads' behind the short context.
    """
    levels = sorted(set(threads) or {torch.get_num_threads()})
    passes = _Passes(target, widths, levels)
    began = passes.now()
    done = False
    for turn in range(TURNS):
        for level in levels:
            _use_threads(level)
            for ask in passes.asks:
                must = not turn and level == levels[0] and ask.context == CONTEXT
                done = not must and passes.now() - began > seconds
                if done:
                    break
                passes.measure(level, ask)
        if done:
            break
    _use_threads(levels[-1])
    return Measured(passes.curves(widths), passes.sure())


def _use_threads(count: int) -> None:
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


class _Passes:
    """The passes of :func:`calibrate`: what each took, and whether the threads changed a bit."""

    def __init__(self, target: AnyTarget, widths: Sequence[int], levels: list[int]):
        self.target, self.levels, self.widest = target, levels, max(*widths, WIDTHS[-1])
        self.prompt = _ids(target, 37, 101, CONTEXT, self.widest)
        measured = [w for w in widths if w in {*ANCHORS, WIDTHS[-1], widths[0], widths[-1]}]
        ends = [w for w in measured if w in (widths[0], VERIFY_WIDTH, widths[-1])]
        # where plain decoding's own pass is one compiled row there is no faster one beside it
        one_call = widths[0] == 1 and target.pass_kind == "compiled"
        self.one_row: AttentionKind = "layout_invariant" if one_call else "masked"
        self.asks = [] if one_call else [Ask("masked", 1, CONTEXT)]
        self.asks += [Ask("layout_invariant", w, CONTEXT) for w in measured]
        self.far = min(FAR, target.max_positions - self.widest)
        if self.far > 2 * CONTEXT:
            self.asks += [] if one_call else [Ask("masked", 1, self.far)]
            self.asks += [Ask("layout_invariant", w, self.far) for w in ends]
        self.least: dict[int, dict[Ask, float]] = {level: {} for level in levels}
        self.second: dict[int, dict[Ask, float]] = {level: {} for level in levels}
        self.busy: set[int] = set()
        self.unequal: set[int] = set()
        self._bits: dict[Ask, torch.Tensor] = {}
        _use_threads(levels[0])
        self._caches = self._filled()

    def now(self) -> float:
        return clock_now(self.target.device)

    def _filled(self) -> dict[int, KVCache]:
        """A cache by context. The long one holds the short one's content again and again: what a
        pass costs does not depend on it.
        """
        near = self.target.new_cache(len(self.prompt) + self.widest)
        self.target.prefill(near, self.prompt)
        far = _repeated(self.target, near, len(self.prompt), self.far, self.widest)
        return {CONTEXT: near, self.far: far}

    def measure(self, level: int, ask: Ask) -> None:
        """One pass with that many threads, unless their cores are busy."""
        if level in self.busy:
            return
        ms, logits = self._pass(ask)
        known = [self.least[one].get(ask) for one in self.levels if one < level]
        fewer = min((least for least in known if least is not None), default=math.inf)
        if ms > SLOW * fewer:  # again, as a first pass prepares things
            ms = min(ms, self._pass(ask)[0])
            if ms > SLOW * fewer:
                self.busy.add(level)
        before = self.least[level].get(ask, math.inf)
        second = self.second[level].get(ask, math.inf)
        self.second[level][ask] = min(max(ms, before), second)
        self.least[level][ask] = min(ms, before)
        if not torch.equal(self._bits.setdefault(ask, logits), logits):
            self.unequal.add(level)

    def _pass(self, ask: Ask) -> tuple[float, torch.Tensor]:
        """Milliseconds, and the logits."""
        nodes = 1 if ask.width > 1 else 0
        began = self.now()
        logits, _ = self.target.verify(
            self._caches[ask.context],
            self.prompt[0],
            self.prompt[1:2][:nodes],
            [-1][:nodes],
            ask.width,
            attention=ask.kind,
        )
        logits.max(-1).indices.tolist()
        return (self.now() - began) * 1e3, logits

    def sure(self) -> bool:
        """See :class:`Measured`."""
        short = [ask for ask in self.asks if ask.context == CONTEXT]
        return not self.busy and all(
            self.second[level].get(ask, math.inf) <= AGREEMENT * self.least[level][ask]
            for level in self.levels
            for ask in short
        )

    def curves(self, widths: Sequence[int]) -> dict[int, CostModel]:
        """See :class:`Measured`."""
        curves: dict[int, CostModel] = {}
        for level in self.levels:
            fewer = list(curves.values())[-1:]
            known = {} if level in self.busy else self.least[level]
            curves[level] = self._curve(known, widths, *fewer)
        if self.unequal:  # of the fewest threads' bits: then the number stays as it is
            return {self.levels[-1]: curves[self.levels[-1]]}
        return dict(reversed(curves.items()))

    def _curve(
        self, known: dict[Ask, float], widths: Sequence[int], fewer: CostModel | None = None
    ) -> CostModel:
        """The costs by what was measured; where that is nothing, or more, those of fewer threads:
        more are no slower, where nothing else runs.
        """

        def points(context: int) -> dict[int, float]:
            return {
                ask.width: ms
                for ask, ms in known.items()
                if ask.kind == "layout_invariant" and ask.context == context
            }

        near, far = points(CONTEXT), points(self.far)
        one_row = known.get(Ask(self.one_row, 1, CONTEXT))
        if fewer is not None and (not near or one_row is None):
            return fewer
        assert one_row is not None  # of the fewest threads all of these are measured
        ms = interpolated(near, widths)
        more = self.far - CONTEXT
        rising = {w: max(far[w] - ms[w], 0.0) / more for w in far}
        slope = interpolated(rising, widths) if rising else {}
        one_row_far = known.get(Ask(self.one_row, 1, self.far))
        one_row_slope = 0.0 if one_row_far is None else max(one_row_far - one_row, 0.0) / more
        if fewer is not None:
            ms = {w: min(ms[w], fewer.ms[w]) for w in widths}
            one_row = min(one_row, fewer.one_row_ms)
            slope = slope or fewer.slope
            one_row_slope = one_row_slope if one_row_far is not None else fewer.one_row_slope
        return CostModel(ms, one_row, list(widths), slope, one_row_slope)


def interpolated(points: Mapping[int, float], widths: Sequence[int]) -> dict[int, float]:
    """A value for each of ``widths``, ascending: the measured ``points`` (at least one), none more
    than a wider one's; straight lines between them and beyond the last two; level before the first.
    """
    at = sorted(points)
    rising = [min(points[wider] for wider in at if wider >= w) for w in at]
    out = {}
    for width in widths:
        i = min(max(bisect_left(at, width), 1), len(at) - 1)
        if len(at) == 1 or width <= at[0]:
            out[width] = rising[0]
            continue
        share = (width - at[i - 1]) / (at[i] - at[i - 1])
        out[width] = rising[i - 1] + share * (rising[i] - rising[i - 1])
    return out


def equal_widths(target: AnyTarget) -> list[int]:
    """Widths whose logits equal, bit for bit, those of ``VERIFY_WIDTH`` rows, however the rows are
    shared out between passes; none where those of ``VERIFY_WIDTH`` itself do not.

    Three tokens are read one a pass, as one chain, and as a tree beside a branch that is rejected;
    behind a prompt that ends just before the eager attention is first cut in two, and, where the
    target has positions for it, one that ends just before the compiled one is.
    """
    widths = _equal(target, WIDTHS)
    return widths if VERIFY_WIDTH in widths else []


@torch.inference_mode()
def equal_wider_widths(target: AnyTarget) -> list[int]:
    """Those of ``WIDER`` of which :func:`equal_widths` would say the same."""
    room = target.max_positions - LayoutInvariantAttention.SHORT
    return _equal(target, [width for width in WIDER if width <= room])


def _equal(target: AnyTarget, asked: Sequence[int]) -> list[int]:
    if not asked:
        return []
    widest = max(asked)
    text = _ids(target, 91, 7, 3, widest)
    prompt = _ids(target, 53, 29, LayoutInvariantAttention.SHORT - 2, widest + len(text))
    near = target.new_cache(len(prompt) + len(text) + widest)
    target.prefill(near, prompt)
    readings = _Readings(target, near, text, prompt[:2])
    widths = [w for w in asked if readings.agree(w, readings.forms(w)) and readings.level(w)]
    long = COMPILED_SHORT - 1
    if not widths or long + len(text) + widest > target.max_positions:
        return widths
    cache = _repeated(target, near, len(prompt), long, len(text) + widest)
    far = _Readings(target, cache, text, prompt[:2])
    # of each width its widest form alone: all of them double the time that this takes
    return [w for w in widths if far.agree(w, far.forms(w)[-1:])]


class _Readings:
    """The three tokens ``text`` read behind what ``cache`` holds, in several forms: logits ``[3,
    V]``; ``branch`` are the two tokens of a rejected one.
    """

    def __init__(self, target: AnyTarget, cache: KVCache, text: list[int], branch: list[int]):
        self.target, self.cache, self.length = target, cache, cache.length
        self.text, self.branch = text, branch
        self.reference = self.chain(VERIFY_WIDTH)

    def forms(self, width: int) -> Sequence[Callable[[int], torch.Tensor]]:
        """Those that fit in passes of ``width`` rows, widest last."""
        return (self.steps, self.chain, self.tree)[: 1 + (width >= 3) + (width >= 5)]

    def agree(self, width: int, forms: Sequence[Callable[[int], torch.Tensor]]) -> bool:
        return all(torch.equal(form(width), self.reference) for form in forms)

    def level(self, width: int) -> bool:
        """Whether the same token has the same logits in every row of a pass, as siblings."""
        self.cache.rollback(self.length)
        tokens = [self.text[1]] * (width - 1)
        rows = self.target.verify(self.cache, self.text[0], tokens, [-1] * len(tokens), width)[0]
        return all(torch.equal(row, rows[1]) for row in rows[2:])

    def steps(self, width: int) -> torch.Tensor:
        self.cache.rollback(self.length)
        rows = []
        for token in self.text:
            rows.append(self.target.verify(self.cache, token, [], [], width)[0][0])
            self.cache.commit([])
        return torch.stack(rows)

    def chain(self, width: int) -> torch.Tensor:
        return self._read(self.text[1:], [-1, 0], width)

    def tree(self, width: int) -> torch.Tensor:
        return self._read([*self.branch, *self.text[1:]], [-1, 0, -1, 2], width)[[0, 3, 4]]

    def _read(self, tokens: list[int], parent: list[int], width: int) -> torch.Tensor:
        self.cache.rollback(self.length)
        return self.target.verify(self.cache, self.text[0], tokens, parent, width)[0]


def _repeated(target: AnyTarget, content: KVCache, period: int, length: int, spare: int) -> KVCache:
    """A cache of ``length`` slots, and room for ``spare`` more, that holds the first ``period``
    slots of ``content`` again and again: no long prompt need be read.
    """
    cache = target.new_cache(length + spare)
    cache.repeat(content, period, length)
    return cache


def _ids(target: AnyTarget, step: int, first: int, count: int, spare: int) -> list[int]:
    """Arbitrary token ids, no more than leave room for ``spare``."""
    return [
        (step * i + first) % (target.vocab_size - 1)
        for i in range(min(count, target.max_positions - spare))
    ]


def draft_pass_ms(
    engine: Engine,
    net: BlockDrafter | None = None,
    shapes: Sequence[tuple[int, int]] = (),
    catch_up: int = 0,
    context: int = 160,
    repeats: int = 20,
) -> dict[str, float]:
    """Milliseconds of one pass of a block drafter and its head, by ``blocks x slots``.

    Args:
        net: bound to the engine's target (default: the pair's own). shapes: (blocks, slots)
            (default: blocks of 8 and of all its slots, and four of those at once).
        catch_up: also take in the target's features of that many new tokens, as every round must.
    """
    if net is None:
        net = _block_drafter(engine)
    device = engine.target.device
    out: dict[str, float] = {}
    with torch.inference_mode():
        cache = net.new_cache(context + 64)
        take_in = _reader(engine, net, cache, context)
        take_in(context)

        def step(ids: torch.Tensor) -> torch.Tensor:
            take_in(catch_up)
            return net.logits(net.hidden(ids, context, cache)[:, 1:])

        for blocks, slots in shapes or ((1, 8), (1, net.block_size), (4, net.block_size)):
            ids = torch.full((blocks, slots), -1, device=device)
            ids[:, 0] = 11
            out[f"{blocks}x{slots}"] = median_ms(device, partial(step, ids), repeats)
    return out


def _reader(engine: Engine, net: Any, cache: Any, context: int) -> Callable[[int], None]:
    """What takes in the last so many of ``context`` tokens, as a round does."""
    if net.reads_text:

        def read(count: int) -> None:
            cache.rollback(context - count if cache.end else 0)
            net.read(cache, [11] * (context + 1))

        return read
    config, dtype = engine.target.config, engine.target.dtype
    width = len(net.layer_ids) * config.hidden_size
    features = torch.randn(context, width, dtype=dtype, device=engine.target.device)
    return lambda count: net.extend(cache, features[:count], context - count)


def _block_drafter(engine: Engine) -> BlockDrafter:
    from ..models.block_drafter import BlockDrafter
    from ..models.drafters import load_drafter

    net = load_drafter(engine.loaded.pair, "block", engine.loaded)
    if not isinstance(net, BlockDrafter):
        raise UserError("The pair has no block drafter to measure; choose a pair with one.")
    return net


def median_ms(device: torch.device, step: Callable[[], object], repeats: int) -> float:
    """Median milliseconds of ``step`` on ``device`` after three warm-up calls."""
    for _ in range(3):
        step()
    samples = []
    for _ in range(repeats):
        began = clock_now(device)
        step()
        samples.append((clock_now(device) - began) * 1e3)
    return statistics.median(samples)
