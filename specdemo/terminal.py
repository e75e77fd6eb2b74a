"""What ``specdemo race`` prints: the speculative lane's tokens in colour, then the summary."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .console import printable
from .events import (
    DraftMade,
    Event,
    Prefill,
    Start,
    Verify,
)
from .lane_names import lane_names, same_settings
from .totals import (
    UNRELIABLE,
    AgainstResult,
    ArTotals,
    ExactCheck,
    LaneTotals,
    RaceResult,
    Served,
    SpecTotals,
)

STYLES = {
    "accepted": "bold blue",
    "correction": "yellow underline",
    "bonus": "cyan",
    "plain": "default",
    "rejected": "dim strike",
}
LEGEND = {
    "accepted": "accepted draft token",
    "correction": "target's correction",
    "bonus": "bonus token",
    "plain": "plain token",
    "rejected": "rejected draft token",
}
# The one-row kernel is named as the baseline where it beats the plain lane by more than this: two
# runs of one and the same kernel differ by about 1 %.
ONE_ROW_MARGIN = 1.03
# In fewer rounds one pause decides a speed-up.
MIN_ROUNDS = 3
# Logits this near count as a tie: bfloat16 values from 16 to 32 are 0.125 apart, so kernels that
# add in another order may swap them.
NEAR_TIE = 0.5


class Printer:
    """Prints the speculative lane as it grows. Model text is printed as text: markup in it is never
    interpreted, control characters in it never reach the terminal.

    Rejected draft tokens are shown, before what replaced them, only on a terminal: in a file they
    could not be told from the answer.
    """

    def __init__(self, console: Console):
        self.console, self.draft = console, DraftMade()
        self.vocab: dict[str, str] = {}

    def show(self, event: Event) -> None:
        """Print what ``event`` adds to the answer."""
        self.vocab.update(getattr(event, "vocab", {}))
        if isinstance(event, Prefill) and event.lane == "spec":
            self._print(event.text, "plain")
        elif getattr(event, "lane", None):
            return  # the left lane's
        elif isinstance(event, DraftMade):
            self.draft = event
        elif isinstance(event, Verify):
            rejected = self._first_rejected(event)
            for kept in event.kept:
                if kept["node"] is None and rejected is not None and self.console.is_terminal:
                    self._print(self.vocab.get(str(rejected), ""), "rejected")
                self._print(kept["text"], kept["source"])

    def _first_rejected(self, event: Verify) -> int | None:
        """The first drafted token that was rejected behind the last accepted node."""
        last = max((k["node"] for k in event.kept if k["node"] is not None), default=-1)
        nodes = zip(self.draft.tokens, self.draft.parent, event.status, strict=True)
        return next(
            (token for token, parent, status in nodes if status == "rejected" and parent == last),
            None,
        )

    def _print(self, text: str, source: str) -> None:
        self.console.print(Text(printable(text), STYLES[source]), end="", soft_wrap=True)


def print_legend(console: Console) -> None:
    """What the colours mean."""
    words = ((f" {words} ", STYLES[source]) for source, words in LEGEND.items())
    console.print(Text.assemble("The speculative lane: ", *words))


def print_summary(console: Console, result: RaceResult, start: Start | None = None) -> None:
    """The lanes' figures, and what they mean in sentences.

    Args:
        result: of the race's ``Done`` event.
        start: its first event, which tells two lanes of the same method apart.
    """
    where = ", ".join(filter(None, (result["dtype"], result["hardware"])))
    title = f"{result['method']} on {result['pair']}, {where}"
    if "served" in result:
        title = f"{result['pair']}, {where}"
    table = Table("lane", title=Text(printable(title)), title_justify="left")
    for heading in ("tokens", "tok/s", "seconds", "first", "rounds", "tok/round", "acc/round"):
        table.add_column(heading, justify="right")
    if ar := result["ar"]:
        table.add_row("plain", *_lane_cells(ar), str(ar["tokens"] - 1), "1", "0")
    against = result.get("against")
    if against:
        left, right = _names(result, start)
        table.add_row(Text(printable(left)), *_spec_cells(against["spec"]))
    if spec := result["spec"]:
        table.add_row(Text(printable(right)) if against else "speculative", *_spec_cells(spec))
    console.print("\n")
    console.print(table)
    for line in verdict(result, start):
        console.print(Text(printable(line)))


def _lane_cells(lane: LaneTotals) -> tuple[str, str, str, str]:
    return (
        str(lane["tokens"]),
        f"{lane['tokens_per_second']:.1f}",
        f"{lane['seconds']:.2f}",
        f"{lane['ttft_seconds']:.2f}",
    )


def _spec_cells(spec: SpecTotals) -> tuple[str, ...]:
    return (
        *_lane_cells(spec),
        str(spec["rounds"]),
        f"{spec['tokens_per_round']:.2f}",
        f"{spec['accepted_per_round']:.2f}",
    )


def _names(result: RaceResult, start: Start | None) -> tuple[str, str]:
    """What the two drafting lanes are called."""
    if start is not None and start.against:
        return lane_names(start)
    against = result.get("against")
    return against["method"] if against else "", result["method"]


def verdict(result: RaceResult, start: Start | None = None) -> list[str]:
    """The outcome in sentences; a slower race is named as plainly as a faster one."""
    lines = []
    if served := result.get("served"):
        return [*_served(served, result), *filter(None, [result["note"]])]
    if result["speedup"] and result["ar"]:
        speed = _speedup(result["method"], result["speedup"], result["ar"])
        predicted = result["predicted_speedup"] or 0
        lines.append(f"{speed} (predicted from the measured costs: {predicted:.2f}).")
        lines += _unreliable(result["speedup"], predicted, result["spec"])
    if result["identical"]:
        lines.append("Both lanes wrote exactly the same tokens.")
    elif first := result["first_difference"]:
        lines.append(
            f"The lanes differ from token {first['position']} on{_gap(first['top2_gap'])}."
        )
    else:
        lines.append(
            "This rule keeps the target's distribution, not the sample, so the two texts may"
            " differ."
        )
    if against := result.get("against"):
        lines += _against(against, *_names(result, start))
        if start is not None and same_settings(start):
            lines.append("Both lanes draft in the same way, so their ratio is a measure of noise.")
    if exact := result.get("exact"):
        lines += _exactness(exact)
    if note := result.get("note"):
        lines.append(note)
    return lines


def _against(left: AgainstResult, name: str, right: str) -> Iterator[str]:
    """The left lane, called ``name``, beside the right one and plain decoding."""
    if left["ratio"]:
        pace = f"at {left['ratio']:.2f} times the speed of"
        if round(left["ratio"], 2) == 1:
            pace = "as fast as"
        yield f"{right} runs {pace} {name}."
    if left["speedup"]:
        predicted = left["predicted_speedup"] or 0
        yield (
            f"{name} itself runs at {left['speedup']:.2f} times the speed of plain decoding"
            f" (predicted: {predicted:.2f})."
        )
        yield from _unreliable(left["speedup"], predicted, left["spec"])
    if left["identical"]:
        yield f"{name} wrote the tokens of plain decoding too."
    elif first := left["first_difference"]:
        yield (
            f"{name} differs from plain decoding from token {first['position']}"
            f" on{_gap(first['top2_gap'])}."
        )
    if exact := left.get("exact"):
        yield from (f"{name}: {line[0].lower()}{line[1:]}" for line in _exactness(exact))


def _served(served: Served, result: RaceResult) -> Iterator[str]:
    """What may be said of a race on an engine that serves elsewhere."""
    clock = "by the engine's own clock" if served["clock"] == "engine" else "as chunks arrived here"
    if speedup := result["speedup"]:
        yield f"{speedup:.2f} times the speed of its plain endpoint, {clock}."
    if served["accepted"] is not None and served["drafted"]:
        share = served["accepted"] / served["drafted"]
        yield f"{served['accepted']} of {served['drafted']} draft tokens accepted ({share:.0%})."
    if shares := served["by_position"]:
        listed = ", ".join(f"{share:.0%}" for share in shares)
        yield (
            f"Share of rounds that kept the 1st, 2nd, … drafted token, by the engine's counters:"
            f" {listed}; a round that drafted fewer counts as one that did not."
        )
    yield {
        "tokens": f"Both endpoints wrote the same tokens; {served['engine']} does not promise it.",
        "text": f"Both endpoints wrote the same text; {served['engine']} does not promise it.",
        "parted": f"The texts part at character {served['parted_at']}; {served['engine']} does not"
        " promise otherwise.",
        "none": "The two texts are not compared.",
    }[served["comparison"]]


def _unreliable(speedup: float, predicted: float, spec: SpecTotals | None) -> list[str]:
    """A sentence where the measured costs predict something else; none without a prediction."""
    if not predicted or not spec or spec["rounds"] < MIN_ROUNDS:
        return []
    apart = max(predicted / speedup, speedup / predicted)
    if apart <= UNRELIABLE:
        return []
    why = "the machine was probably busy with something else; race again when it is idle"
    if speedup > predicted:
        why = (
            "a pause of the plain lane, or costs that were measured beside other work; race again"
            " with --remeasure when the machine is idle"
        )
    return [f"That is unreliable, as the two are {apart:.1f} times apart: {why}."]


def _speedup(method: str, speedup: float, plain: ArTotals) -> str:
    """The speed-up, and what it is measured against where that is not the lane in the table."""
    times = f"{speedup:.2f} times"
    if method == "ar":
        return (
            f"{times} the speed of plain decoding: nothing is drafted, so any difference is timing"
            " noise"
        )
    baseline, one_row = "plain decoding", plain["one_row_tokens_per_second"]
    if one_row > ONE_ROW_MARGIN * plain["tokens_per_second"]:
        baseline += f"'s faster one-row kernel ({one_row:.1f} tok/s by the costs measured at load)"
    if times == "1.00 times":
        return f"As fast as {baseline}"
    if speedup > 1:
        return f"{times} the speed of {baseline}"
    return f"{times} the speed of {baseline}, so slower: drafting did not pay here"


def _exactness(exact: ExactCheck) -> Iterator[str]:
    """What ``--check exact`` found."""
    same = "bit for bit identical"
    if not exact["identical"]:
        same = (
            f"{exact['unequal']} of {exact['positions']} rows differ (by at most"
            f" {exact['max_difference']:.3g})"
        )
    yield f"Against decoding one token a pass at width {exact['reference_width']}: {same}."
    first = exact["one_row"]["first_difference"]
    same = "identical"
    if first is not None:
        same = f"first difference at token {first['position']}{_gap(first['top2_gap'])}"
    yield f"Against the one-row kernel: {same}."


def _gap(gap: float | None) -> str:
    """How near the choice was where two texts part."""
    if gap is None:
        return ""
    tie = ", a near-tie of different kernels" if gap < NEAR_TIE else ""
    return f"; the two best choices were {gap:.3g} apart there{tie}"
