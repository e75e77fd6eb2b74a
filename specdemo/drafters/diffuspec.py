"""DiffuSpec: a token lattice from one diffusion pass, a causal-consistency path search through it,
an adaptive draft length (arXiv 2510.02358; lattice: eq. 7; search: eq. 8; length: eq. 9 to 11).

Differences from the paper: the n-gram model is built online from prompt and output, and falls back
on one fitted to the task's domain only where the pair names its counts; scores are divided by the
path's length, because sums favour an early end of text; the averages of the length controller may
be bias-corrected, or decide otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field

from ..errors import UserError
from ..events import Denoise
from .parts.base import Context, Draft, Verdict
from .parts.candidates import Candidates, frame
from .parts.denoising import masks_to_fill
from .parts.ngram import NgramModel
from .parts.params import DEEPEST, Coupled, MethodParams, depth
from .parts.trees import Trie

if TYPE_CHECKING:
    from ..models.load import Loaded

ORDER = 3  # of the n-gram model, as in the paper
M_MAX = 15  # most candidates of one position
SHOWN = 8  # candidates of a position that are recorded

Length = Literal["corrected", "paper", "accepted", "fixed"]


class Params(MethodParams):
    k_max: int = depth(10, "Maximum draft length in masks (paper: 30)")
    k_min: int = depth(5, "Minimum draft length in masks (paper: 20)")
    steps: int = depth(1, "S: denoising steps before the lattice is read")
    beam: int = Field(3, ge=1, le=16, description="B: beam width of the path search")
    tau: float = Field(0.8, ge=0.05, le=1.0, description="τ: top-p mass kept per position")
    mix: float = Field(
        0.5,
        ge=0.0,
        le=1.0,
        description="λ: weight of the drafter against the n-gram model in a path's score (1 ="
        " drafter only)",
    )
    paths: int = Field(
        1, ge=1, le=16, description="Best paths verified together as one tree (paper: 1)"
    )
    length: Length = Field(
        "corrected",
        description="Draft length: the paper's controller with bias-corrected averages, as printed"
        " (neither moves much), δ more than what is accepted on average, or always k_max",
    )
    delta: int = Field(
        5, ge=0, le=DEEPEST, description="δ: masks added when whole drafts are accepted (paper: 10)"
    )
    rho: float = Field(
        0.5, ge=0.05, le=1.0, description="ρ: update rate of the controller's moving averages"
    )
    coupled: Coupled = True

    def needs(self) -> dict[str, int]:
        return {"k_max": self.k_max}

    def most_nodes(self) -> int:
        return self.paths * self.k_max

    def check(self) -> None:
        if self.k_min > self.k_max:
            raise UserError(
                f"k_min ({self.k_min}) must not be above k_max ({self.k_max}); lower one or raise"
                " the other."
            )
        if self.paths > self.beam:
            raise UserError(
                f"paths ({self.paths}) must not be above beam ({self.beam}), as only those are"
                " kept; raise beam or lower paths."
            )


class Path(NamedTuple):
    """One path through the lattice: its ids, the drafter's probabilities, its score (mean over its
    tokens), whether it ends with an end-of-text token.
    """

    ids: tuple[int, ...] = ()
    probs: tuple[float, ...] = ()
    score: float = 0.0
    ended: bool = False


def prune(row: Candidates, tau: float, most: int = M_MAX) -> Candidates:
    """The smallest Top-M of a position with mass at least ``tau``, at most ``most`` (eq. 7)."""
    mass = 0.0
    for m, (_, p) in enumerate(row[:most], 1):
        mass += p
        if mass >= tau - 1e-9:
            return row[:m]
    return row[:most]


def lattice_of(
    rows: Sequence[Candidates], tau: float, eos_ids: Sequence[int], most: int = M_MAX
) -> list[Candidates]:
    """Pruned candidates of every position, up to the first position where an end-of-text token is
    among them.
    """
    lattice: list[Candidates] = []
    for row in rows:
        lattice.append(prune(row, tau, most))
        if any(token in eos_ids for token, _ in lattice[-1]):
            break
    return lattice


def search(
    lattice: Sequence[Candidates],
    model: NgramModel,
    history: Sequence[int],
    beam: int,
    mix: float,
    eos_ids: Sequence[int] = (),
) -> list[Path]:
    """The ``beam`` best paths by mean of λ·log q + (1 − λ)·log p_ngram (eq. 8), best first."""
    tail = list(history[-(ORDER - 1) :]) if ORDER > 1 else []
    beams = [Path()]
    for row in lattice:
        extended = [path for path in beams if path.ended]
        for path in beams:
            if path.ended:
                continue
            prefix = [*tail, *path.ids][-(ORDER - 1) :]
            n = len(path.ids)
            for token, p in row:
                step = mix * math.log(max(p, 1e-30)) + (1 - mix) * math.log(
                    model.prob(prefix, token)
                )
                extended.append(
                    Path(
                        (*path.ids, token),
                        (*path.probs, p),
                        (path.score * n + step) / (n + 1),
                        token in eos_ids,
                    )
                )
        beams = sorted(extended, key=lambda path: -path.score)[:beam]
    return beams


def task_model(loaded: Loaded) -> NgramModel | None:
    """The n-gram model of a task's text that the pair names, read once for ``loaded``; None where
    it names none.

    Raises:
        UserError: its file cannot be used.
    """
    if loaded.pair.ngram is None:
        return None
    if "ngram" not in loaded.networks:
        from ..models.ngram_file import read_ngrams

        vocab_size = loaded.model.config.get_text_config().vocab_size
        ids, counts = read_ngrams(loaded.pair.ngram, loaded.tokenizer, vocab_size)
        model = NgramModel(ORDER, vocab_size)
        for row, count in zip(ids.tolist(), counts.tolist(), strict=True):
            model.add(row, count)
        loaded.networks["ngram"] = model
    return loaded.networks["ngram"]


class LengthController:
    """Adaptive draft length: averages of the drafted length before an end of text and of the
    accepted length decide the next length k (eq. 9 to 11).

    As printed (``paper``) both averages start at 0, so the first update halves the length, from
    which it hardly recovers; ``corrected`` divides them by the weight of the updates so far,
    1 − (1 − ρ)^t, and as the drafted length is k itself unless an end of text is drafted, its
    average then is k_max, whatever is accepted. ``accepted``, ours, asks for δ more than the
    average of what is accepted; ``fixed`` keeps k_max.
    """

    def __init__(
        self, k_min: int, k_max: int, delta: float, rho: float, kind: Length = "corrected"
    ) -> None:
        self.k_min, self.k_max, self.delta, self.rho, self.kind = k_min, k_max, delta, rho, kind
        self.k = k_max
        self.gen = self.acc = 0.0  # the averages as they are used
        self._gen = self._acc = self._seen = 0.0  # and before the correction, with their weight

    def update(self, generated: int, accepted: int) -> int:
        """The next length, after ``generated`` tokens before an end of text (at most k) of which
        ``accepted`` were accepted.
        """
        keep = 1 - self.rho
        self._gen, self._acc = (
            keep * self._gen + self.rho * generated,
            keep * self._acc + self.rho * accepted,
        )
        self._seen = keep * self._seen + self.rho
        scale = 1.0 if self.kind == "paper" else self._seen
        self.gen, self.acc = self._gen / scale, self._acc / scale
        if self.kind != "fixed":
            wanted = self.gen + self.delta * (self.acc >= self.gen)
            if self.kind == "accepted":
                wanted = self.acc + self.delta
            self.k = int(round(min(max(wanted, self.k_min), self.k_max)))
        return self.k


class DiffuSpec:
    """The best path of the lattice, or the best few merged into one trie."""

    def __init__(self, loaded: Loaded, params: Params) -> None:
        from .parts.block_context import open_context

        self.network, self.eos = open_context(loaded, "diffusion"), tuple(loaded.eos_ids)
        self.params = self.network.fit(params, "k_max", "k_min")
        self.vocab_size = loaded.model.config.vocab_size
        self.layer_ids, self.weights = self.network.layer_ids, self.network.weights
        self.task = task_model(loaded)
        if self.task is not None:
            self.weights += ", with the n-grams of a task's text"

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        p = self.params
        self.network.start(capacity)
        self.model = NgramModel(ORDER, self.vocab_size, self.task)
        self.control = LengthController(p.k_min, p.k_max, p.delta, p.rho, p.length)
        self.generated: int | None = None  # None: no draft awaits its verdict

    def propose(self, context: Context) -> Draft:
        p = self.params
        self.model.extend_to(context.ids)
        k = min(self.control.k, context.budget)
        frames: list[Denoise] = []
        rows = self._denoise(context, k, frames)
        self.generated = next((i for i, row in enumerate(rows) if row[0][0] in self.eos), k)
        lattice = lattice_of(rows, p.tau, self.eos)
        paths = search(lattice, self.model, context.ids, p.beam, p.mix, self.eos)
        trie = Trie(context.budget)
        for n, path in enumerate(paths[: p.paths]):
            trie.add(path.ids, path.probs, "path" if n == 0 else f"path {n + 1}")
        notes: dict[str, Any] = {}
        if context.record:
            notes = {
                "lattice": [[list(c) for c in row] for row in lattice],
                "paths": [{"ids": list(path.ids), "score": path.score} for path in paths],
                "path": 0,
                "length": {"k": self.control.k, "gen": self.control.gen, "acc": self.control.acc},
            }
        return trie.draft(frames=frames, notes=notes)

    def observe(self, verdict: Verdict) -> None:
        if self.generated is not None:
            self.control.update(self.generated, len(verdict.path))
            self.generated = None

    def _denoise(self, context: Context, k: int, frames: list[Denoise]) -> list[Candidates]:
        """S passes, each of which fills the most confident masks; a position's candidates are those
        of the pass that filled it. Recorded steps are added to ``frames``.
        """
        from .parts.block_context import MASK

        network, steps = self.network, min(self.params.steps, k)
        network.catch_up(context)
        block = [context.ids[-1]] + [MASK] * k
        table: list[Candidates] = [[] for _ in range(k)]
        for step in range(steps):
            masked = [i for i in range(k) if block[i + 1] == MASK]
            hidden = network.hidden([block], len(context.ids) - 1)[0, 1:]
            if len(masked) < k:
                hidden = hidden[masked]
            positions = [len(context.ids) + i for i in masked]
            rows = network.top_candidates(network.scores(hidden, context, positions), M_MAX)
            for m, i in enumerate(masked):
                table[i] = rows[m]
            sure = [table[i][0][1] for i in masked]
            for m in masks_to_fill(network, "confidence", positions, sure, step, steps):
                block[masked[m] + 1] = table[masked[m]][0][0]
            if context.record:
                frames.append(
                    frame(
                        [row[:SHOWN] for row in table],
                        None,
                        [t == MASK for t in block[1:]],
                        label=f"pass {step + 1} of {steps}",
                        step=step,
                        steps=steps,
                    )
                )
        return table
