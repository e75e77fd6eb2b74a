"""The bench tab: reports that lie in ``assets/bench``, and a short run on this machine."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from ..errors import UserError
from .charts import BUTTONS, LEGEND
from .examples import EXAMPLES
from .server import BROKEN, Server, progress_words

if TYPE_CHECKING:
    from ..bench.schema import Report

MOST_PROMPTS, MOST_TOKENS = 6, 96
PLOTS = 5  # as many as bench.charts.charts makes


def figures_of(report: Report) -> list[Any]:
    from ..bench.charts import charts

    return [
        figure.update_layout(
            template="none",
            title={"text": title, "font": {"size": 15}, "y": 0.98},
            margin={"t": 50},
            height=540,
            legend=LEGEND,
            modebar={"remove": BUTTONS},
        )
        for title, figure in charts(report)
    ]


def read(path: Path | None) -> list[Any]:
    """[words, figures ...] of a report file, or a sentence and no figures."""
    from ..bench import load_report

    blank = [gr.update(value=None, visible=False)] * PLOTS
    if path is None:
        return [
            (
                "No report lies in <code>assets/bench</code> yet; make one with <code>python -m"
                " specdemo bench</code>, or run a short one below."
            ),
            *blank,
        ]
    try:
        return shown(load_report(path))
    except UserError as error:
        return [escape(str(error)), *blank]


def shown(report: Report) -> list[Any]:
    from ..bench.html import fragment

    return [
        fragment(report),
        *(gr.update(value=figure, visible=True) for figure in figures_of(report)),
    ]


def bench_tab(tab: gr.Tab, server: Server, folder: Path, queue: str) -> None:
    files = {path.stem: path for path in sorted(folder.glob("*.json"))}
    with gr.Row():
        choice = gr.Dropdown(
            list(files),
            value=next(iter(files), None),
            label="Report",
            visible=bool(files),
            elem_id="bench-report",
        )
    words = gr.HTML("", elem_id="bench-words")
    plots = [
        gr.Plot(show_label=False, visible=False, elem_id=f"bench-plot-{i}") for i in range(PLOTS)
    ]
    outputs = [words, *plots]
    quiet = {"api_visibility": "private", "show_progress": "minimal"}

    def open_report(name: str | None) -> list[Any]:
        return read(files.get(name or ""))

    choice.input(open_report, choice, outputs, queue=False, **quiet)
    tab.select(open_report, choice, outputs, queue=False, **quiet)
    if server.backend.can_bench:
        short_bench(server, outputs, queue)


def short_bench(server: Server, outputs: list[Any], queue: str) -> None:
    methods, pairs = server.methods, server.pairs
    with gr.Accordion(
        "Measure here: a short run on this machine", open=False, elem_id="bench-here"
    ):
        gr.Markdown(
            "Every prompt is answered plainly, by each method, and plainly again; the two plain"
            " runs show how much of a difference is noise. A few prompts give a rough picture, a"
            " report from the command line a good one."
        )
        chosen = gr.CheckboxGroup(
            [(m.title, name) for name, m in methods.items() if name != "ar"],
            value=[n for n in ("best", "block") if n in methods],
            label="Methods",
        )
        prompts = gr.CheckboxGroup(
            list(EXAMPLES), value=list(EXAMPLES)[:3], label=f"Prompts (at most {MOST_PROMPTS})"
        )
        tokens = gr.Slider(16, MOST_TOKENS, value=48, step=8, label="New tokens")
        with gr.Row():
            run = gr.Button("Measure", variant="primary", elem_id="bench-run")
            stop = gr.Button("Stop measuring", elem_id="bench-stop")
        state = gr.Markdown("", elem_id="bench-status")

    def measure(number: str) -> Iterator[list[Any]]:
        ticket = server.visitors.begin(number)
        keep = [gr.skip()] * len(outputs)
        if ticket is None:
            yield [gr.skip(), *keep]
            return
        names, texts, new = ticket.wish
        try:
            if not names or not texts or len(texts) > MOST_PROMPTS:
                raise UserError(f"Choose at least one method and one to {MOST_PROMPTS} prompts.")
            pair = next(iter(pairs))
            for message, fraction in server.engines.wait(pair):
                yield [progress_words(message, fraction), *keep]
            items = [(t.split(":")[0].lower(), EXAMPLES[t]) for t in texts if t in EXAMPLES]
            steps = server.backend.bench(
                server.engines.get(pair),
                [n for n in names if n in methods],
                items,
                int(min(new, MOST_TOKENS)),
                ticket.cancel,
            )
            for fraction, report, what in server.engines.thread.each(steps):
                yield [progress_words(what, fraction), *(shown(report) if report else keep)]
        except UserError as refusal:
            yield [str(refusal), *keep]
        except Exception:
            traceback.print_exc()
            yield [BROKEN, *keep]
        finally:
            ticket.cancel.set()
            server.visitors.finish(number)

    def enter(request: gr.Request, names: list[str], texts: list[str], new: float) -> str:
        return server.visitors.enter(request.session_hash, (names, texts, new))

    def end(request: gr.Request) -> str:
        server.visitors.stop(request.session_hash)
        return "Stopping …"

    at_once = {
        "queue": False,
        "show_progress": "hidden",
        "api_visibility": "private",
        "trigger_mode": "multiple",
    }
    ticket = gr.State("")
    run.click(enter, [chosen, prompts, tokens], ticket, **at_once).then(
        measure,
        ticket,
        [state, *outputs],
        concurrency_id=queue,
        concurrency_limit=1,
        trigger_mode="multiple",
        show_progress="full",
        show_progress_on=[state],
        api_visibility="private",
    )
    stop.click(end, None, state, **at_once)
