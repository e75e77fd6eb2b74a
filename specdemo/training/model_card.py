"""The README.md of a drafter folder: what it is, how it was trained, how it scores."""

from __future__ import annotations

from typing import Any

from ..models.kinds import DRAFTER_KINDS


def write_card(facts: dict[str, Any]) -> str:
    """Markdown from what a run measured; every number is one that was."""
    s, kind = facts["settings"], facts["settings"]["kind"]
    seen, lengths = "answer tokens" if kind == "ar" else "blocks", s.get("lengths") or ()
    of_lengths = (
        f" of {', '.join(map(str, sorted(set(lengths))))} slots (drawn from"
        f" {' '.join(map(str, lengths))})"
        if lengths
        else ""
    )
    lines = [
        f"# Drafter of kind {kind} for {facts['target']}",
        "",
        (
            f"It {DRAFTER_KINDS[kind].purpose}. Trained by this project with `python -m specdemo"
            " train`; licence as the project's."
        ),
        "",
        "| | |",
        "|---|---|",
        (
            f"| parameters | {facts['parameters'] / 1e6:.1f} M beside the target's own embedding"
            " and head |"
        ),
        f"| started from | {facts['start']} |",
        (
            f"| data | {facts['rows']} row{'s' * (facts['rows'] != 1)} written by the target itself"
            f" (corpus `{facts['corpus']}`) |"
        ),
        (
            f"| training | {facts['steps']} steps of {s['batch']} rows, {facts['anchors']}"
            f" {seen}{of_lengths} in {facts['seconds'] / 60:.1f} minutes on {facts['device']} |"
        ),
        (
            f"| optimiser | AdamW, peak {s['lr']:g}, warm-up and cosine, clip {s['clip']:g}; share"
            f" of soft labels {s['mix']:g} |"
        ),
        "",
    ]
    for name, scores in facts["scores"].items():
        lines += [
            f"## Scores on {facts['evaluated_on']}, {name} text",
            "",
            "Chains of first choices under the *match* rule, tokens the target kept.",
            "",
            (
                "| category | rounds | tokens per round | accepted drafts per round | at least 1,"
                " 2, 4, 8 drafts kept |"
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
        if scores.get("after_revealed"):
            told = ", ".join(
                f"{l}: {v:.2f}" for l, v in scores["after_revealed"].items() if v is not None
            )
            lines += [
                "",
                (
                    "Right tokens in a row after that many true tokens of the block were shown:"
                    f" {told}."
                ),
            ]
        lines.append("")
    return "\n".join(
        lines + ["`training.json` has all scores and the curve (drawn in `curve.svg`)."]
    )
