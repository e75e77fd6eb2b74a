"""Sweeps that follow a figure or table of a paper. ``paper`` quotes what stands there; ours are
other models on other hardware, so the shape of a curve is what can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import UserError
from .points import Point, Sweep

SPECDIFF, SPECDIFF2 = "SpecDiff, arXiv 2408.05636", "SpecDiff-2, arXiv 2511.00606"
GAMMAS, LENGTHS = (2, 4, 7, 10, 15), (3, 5, 7, 10, 15)
DIFFUSPEC, D2SD = "DiffuSpec, arXiv 2510.02358", "D²SD, arXiv 2606.04446"


def _line(template: str, values: Iterable[object], temperature: float = 0.0) -> tuple[Point, ...]:
    return tuple(Point(str(x), template.format(x), temperature) for x in values)


def _temperatures(label: str) -> tuple[Point, ...]:
    return tuple(Point(f"{t:g}", label, t) for t in (0.0, 0.3, 0.6, 1.0))


PRESETS: dict[str, Sweep] = {
    sweep.name: sweep
    for sweep in (
        Sweep(
            "specdiff-steps",
            "SpecDiff: denoising steps",
            "T, denoising steps",
            {f"γ = {g}": _line(f"specdiff:gamma={g}:steps={{}}", (1, 2, 4, 7)) for g in (7, 15)},
            source=f"{SPECDIFF}, ablation of T; {SPECDIFF2}, Fig. 9",
            paper=(
                "SpecDiff-2 with an unaligned DiffuCoder-7B: speed falls quickly with T, accepted"
                " tokens stay nearly flat, so T = 1 is used (Fig. 9, no numbers printed)."
            ),
        ),
        Sweep(
            "specdiff-gamma",
            "SpecDiff: masks in a block",
            "γ, masks",
            {
                f"T = {t}": _line(f"specdiff:gamma={{}}:steps={t}", (2, 4, 7, 10, 15))
                for t in (1, 2)
            },
            source=f"{SPECDIFF}, ablation of γ; {SPECDIFF2}, Fig. 10",
            paper=(
                "SpecDiff-2: too small a γ caps the streak, too large a γ lowers the drafts'"
                " quality (Fig. 10, no numbers printed); γ = 32 for DiffuCoder, 16 for DiffuLLaMA."
            ),
        ),
        Sweep(
            "specdiff2-drafts",
            "SpecDiff-2: drafts to choose from",
            "K, drafts",
            {
                f"drafts at temperature {t}": _line(
                    f"specdiff2:temperature={t}:argmax=false:drafts={{}}", (1, 2, 4, 8)
                )
                for t in (0.1, 1.0, 2.0)
            },
            source=f"{SPECDIFF2}, Fig. 5",
            paper=(
                "Speed-up on Math-500 for K = 1/2/4/8, Qwen2.5-72B with DiffuCoder-7B on two"
                " A100: 4.35/4.31/4.29/4.34 at 0.1, 4.23/4.40/4.45/4.45 at 1.0,"
                " 3.98/4.23/4.50/4.61 at 2.0 (read off the figure)."
            ),
        ),
        Sweep(
            "specdiff2-rules",
            "SpecDiff-2: rule, drafts and temperature",
            "K, drafts",
            {
                f"{rule}, answers at {t:g}": _line(
                    f"specdiff2:rule={rule}:drafts={{}}", (1, 4, 8), t
                )
                for rule in ("match", "ratio", "point-mass")
                for t in (0.0, 1.0)
            },
            source=f"{SPECDIFF2}, Tables 2 and 3",
            paper=(
                "Qwen2.5-72B, mean of three tasks: 4.29× and 5.98 tokens a draft at temperature 0,"
                " 4.39× and 6.14 at 1; selection is said to add about 15 %."
            ),
        ),
        Sweep(
            "diffuspec-parts",
            "DiffuSpec: path search and adaptive length",
            "parts",
            {
                "DiffuSpec": (
                    Point("both", "diffuspec"),
                    Point("search only", "diffuspec:length=fixed"),
                    Point("length only", "diffuspec:mix=1:beam=1"),
                    Point("neither", "diffuspec:mix=1:beam=1:length=fixed"),
                )
            },
            source=f"{DIFFUSPEC}, Table 2",
            paper=(
                "Accepted tokens and speed-up, Qwen2.5-32B with Dream-7B: both 6.99/3.08×, search"
                " only 6.95/2.98×, length only 6.43/2.73×, neither 6.05/2.69×."
            ),
        ),
        Sweep(
            "diffuspec-length",
            "DiffuSpec: draft length",
            "k, masks",
            {
                "fixed": _line("diffuspec:length=fixed:k_max={0}:k_min={0}", LENGTHS),
                "adaptive up to k": _line("diffuspec:k_min=3:k_max={}", LENGTHS),
                "adaptive as printed": _line("diffuspec:length=paper:k_min=3:k_max={}", LENGTHS),
                "δ = 2 more than is accepted": _line(
                    "diffuspec:length=accepted:delta=2:k_min=1:k_max={}", LENGTHS
                ),
            },
            source=f"{DIFFUSPEC}, Table 5",
            paper=(
                "Qwen2.5-32B with Dream-7B, fixed k = 10/20/30/50/100: accepted"
                " 5.53/6.56/6.49/6.51/6.69, speed-up 2.74/2.98/2.98/2.91/2.78; adaptive 6.99 and"
                " 3.08×."
            ),
        ),
        Sweep(
            "diffuspec-search",
            "DiffuSpec: settings of the path search",
            "setting",
            {
                "B, beam": _line("diffuspec:beam={}", (1, 2, 3, 4, 8)),
                "τ, kept mass": _line("diffuspec:tau={}", (0.5, 0.7, 0.8, 0.9, 0.95)),
                "λ, weight of the drafter": _line("diffuspec:mix={}", (0, 0.25, 0.5, 0.75, 1)),
                "S, denoising steps": _line("diffuspec:steps={}", (1, 2, 4)),
            },
            source=f"{DIFFUSPEC}, Figs. 6 and 7",
            paper=(
                "B is best at 3 to 4, τ near 0.8 (curves, no numbers printed); from S = 1 to 10"
                " accepted tokens rise from 6.99 to 7.33, speed-up falls from 3.08 to 0.93×."
            ),
        ),
        Sweep(
            "d2sd-branches",
            "D²SD: second drafts, beside trees of one pass",
            "K, second drafts",
            {
                "D²SD": _line("d2sd:branches={}", (0, 1, 2, 4, 6)),
                "K + 1 drafts sampled from one pass": tuple(
                    Point(str(k), f"specdiff2:drafts={k + 1}") for k in (0, 1, 2, 4, 6)
                ),
                "a tree of 7 · (K + 1) nodes from one pass": tuple(
                    Point(str(k), f"tree:gamma=7:budget={min(63, 7 * (k + 1))}")
                    for k in (0, 1, 2, 4, 6)
                ),
            },
            source=f"{D2SD}, Tables 5 to 7",
            paper=(
                "Qwen3-8B on an H200, speed-up and tokens a round: DFlash 4.48/5.75, four resamples"
                " 5.06/6.08, DFlash as its own second drafter 4.69/6.53, D²SD (K = 4) 5.35/7.62."
            ),
        ),
        Sweep(
            "tree-nodes",
            "Trees: nodes",
            "nodes",
            {"tree": _line("tree:budget={}", (1, 3, 7, 15, 31, 63))},
            source="DDTree; CaDDTree",
            paper="DDTree on Qwen3-8B and an H200 peaks at 256 to 512 nodes.",
        ),
        Sweep(
            "temperature",
            "Temperature of the answers",
            "temperature",
            {name: _temperatures(name) for name in ("block", "tree", "specdiff2", "d2sd", "best")},
            source=f"{SPECDIFF2}, Tables 2 and 4; {D2SD}, Table 3",
            paper=(
                "SpecDiff-2 on Qwen2.5-72B: 4.29× at 0, 4.39× at 1; D²SD on Qwen3-8B: 4.98× at 0,"
                " 4.01× at 1."
            ),
        ),
    )
}


def preset(name: str) -> Sweep:
    """Raises UserError: there is none of this name."""
    if name not in PRESETS:
        raise UserError(
            f"There is no sweep “{name}”; choose from {', '.join(PRESETS)}, or name a method and"
            " what to vary: specdiff --vary gamma=2..15."
        )
    return PRESETS[name]
