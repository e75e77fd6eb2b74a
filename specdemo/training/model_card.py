"""The README.md of a drafter folder: what it is, how it was trained, how it scores."""

from __future__ import annotations

from typing import Any

from ..models.kinds import DRAFTER_KINDS


def write_card(facts: dict[str, Any]) -> str:
    """Markdown from what a run measured; every number is one that was."""
    kind = facts["settings"]["kind"]
    lines = [
        f"# Drafter of kind {kind} for {facts['target']}",
        "",
        (
            f"It {DRAFTER_KINDS[kind].purpose}. Trained by this project with `python -m specdemo"
            " train`; licence as the project's."
        ),
        "",
        *_training_table(facts),
        "",
    ]
    for name, scores in facts["scores"].items():
        lines += [f"## Scores on {facts['evaluated_on']}, {name} text", "", *_scores(scores), ""]
    lines.append("`training.json` has all scores and the curve (drawn in `curve.svg`).")
    return "\n".join(lines)


def _training_table(facts: dict[str, Any]) -> list[str]:
    s = facts["settings"]
    unit = {"ar": "answer tokens", "diffusion-lm": "texts"}.get(s["kind"], "blocks")
    lengths = s.get("lengths") or ()
    of_lengths = (
        f" of {', '.join(map(str, sorted(set(lengths))))} slots (drawn from"
        f" {' '.join(map(str, lengths))})"
        if lengths
        else ""
    )
    rows = {
        "parameters": (
            f"{facts['parameters'] / 1e6:.1f} M"
            + (
                ", embedding and head among them"
                if s["kind"] == "diffusion-lm"
                else " beside the target's own embedding and head"
            )
        ),
        "started from": facts["start"],
        "data": (
            f"{facts['rows']} row{'s' * (facts['rows'] != 1)} written by the target itself"
            f" (corpus `{facts['corpus']}`)"
        ),
        "training": (
            f"{facts['steps']} steps of {s['batch']} rows, {facts['anchors']} {unit}{of_lengths} in"
            f" {facts['seconds'] / 60:.1f} minutes on {facts['device']}"
        ),
        "optimiser": (
            f"AdamW, peak {s['lr']:g}, {_schedule(s)}, clip {s['clip']:g}; share of soft labels"
            f" {s['mix']:g}"
        ),
    }
    if "reads" in facts:
        rows["reads"] = facts["reads"]
    if s["kind"] not in ("ar", "markov"):
        rows["blocks and loss"] = _recipe(s)
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]


def _schedule(s: dict[str, Any]) -> str:
    """The learning rate's way, and the average of the weights, in words."""
    way = "warm-up and cosine"
    if s["decay_from"]:
        way = f"warm-up, constant up to {100 * s['decay_from']:g} % of the budget, then a cosine"
    return way + (f", average of the weights {s['average']:g}" if s["average"] else "")


def _recipe(s: dict[str, Any]) -> str:
    """Blocks and loss in words."""
    kind = DRAFTER_KINDS[s["kind"]]
    shares = " / ".join(f"{x:g}" for x in tuple(s["shares"]) or kind.block_shares)
    start = kind.streak_from if s["streak_from"] < 0 else s["streak_from"]
    parts = [f"cross-entropy, loss {s['loss']}"] if start > 0 else []
    if start < 1:
        paper = kind.name in ("streak", "diffusion-lm")
        exact = f", exact from {100 * s['exact_from']:g} %" if paper else ""
        parts.append(f"streak from {100 * start:g} % of the budget on{exact}")
    decay = f"{s['gamma_d']:g}" if s["gamma_d"] else "by block size"
    return (
        f"{', then '.join(parts)}; shares of blocks {shares} (anchor alone / variable prefix, β"
        f" {s['beta']:g} / random), γ_d {decay}"
    )


def _scores(scores: dict[str, Any]) -> list[str]:
    lines = [
        "Chains of first choices under the *match* rule, tokens the target kept.",
        "",
        (
            "| category | rounds | tokens per round | accepted drafts per round | at least 1, 2, 4,"
            " 8 drafts kept |"
        ),
        "|---|---|---|---|---|",
    ]
    for label, row in {"all": scores["all"], **scores["by_category"]}.items():
        kept = row["kept_at_least"]
        some = ", ".join(f"{100 * kept[k - 1]:.0f} %" for k in (1, 2, 4, 8) if k <= len(kept))
        lines.append(
            f"| {label} | {row['rounds']} | {row['tokens_per_round']:.2f} |"
            f" {row['accepted_per_round']:.2f} | {some} |"
        )
    if shares := scores.get("expected_acceptance"):
        some = ", ".join(
            f"{j}: {shares[j - 1]:.3f}"
            for j in (1, 2, 3, 4, 6, 8, 12, 15)
            if j <= len(shares) and shares[j - 1] is not None
        )
        lines += [
            "",
            f"α̃_j (SpecDiff-2 Eq. 4: Σ P·q along this text, temperature 1) by slot: {some}.",
        ]
    if after := scores.get("after_revealed"):
        means = ", ".join(f"{l}: {mean:.2f}" for l, mean in after.items() if mean is not None)
        lines += [
            "",
            f"Right tokens in a row after that many true tokens of the block were shown: {means}.",
        ]
    return lines
