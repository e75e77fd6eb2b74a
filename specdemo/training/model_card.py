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
    unit, lengths = "answer tokens" if s["kind"] == "ar" else "blocks", s.get("lengths") or ()
    of_lengths = (
        f" of {', '.join(map(str, sorted(set(lengths))))} slots (drawn from"
        f" {' '.join(map(str, lengths))})"
        if lengths
        else ""
    )
    recipe = (
        f"loss {s['loss']}, shares of blocks {' / '.join(f'{x:g}' for x in _shares(s))} (anchor"
        f" alone / variable prefix, β {s['beta']:g} / random), γ_d"
        f" {format(s['gamma_d'], 'g') if s['gamma_d'] else 'by block size'}"
    )
    rows = {
        "parameters": (
            f"{facts['parameters'] / 1e6:.1f} M beside the target's own embedding and head"
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
            f"AdamW, peak {s['lr']:g}, warm-up and cosine, clip {s['clip']:g}; share of soft"
            f" labels {s['mix']:g}"
        ),
    }
    if s["kind"] not in ("ar", "markov"):
        rows["blocks and loss"] = recipe
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]


def _shares(settings: dict[str, Any]) -> tuple[float, ...]:
    return tuple(settings["shares"]) or DRAFTER_KINDS[settings["kind"]].block_shares


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
