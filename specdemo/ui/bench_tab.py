"""The Bench tab: reports in ``assets/bench``, and a short run on this machine."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from ..errors import UserError
from .examples import EXAMPLES
from .jobs import BenchJob
from .server import BROKEN, Server, progress_text, session_of

if TYPE_CHECKING:
    from ..bench.schema import Report

MAX_PROMPTS, MAX_TOKENS = 6, 96
PLOTS = 7  # as many as bench.charts.charts makes at most
HERE = 3  # of a short run
# below: above, it lay over the title on a phone
LEGEND = {
    "orientation": "h",
    "yref": "container",
    "y": 0,
    "yanchor": "bottom",
    "x": 0,
    "xanchor": "left",
}
# Plotly lays them over the title; dragging zooms and a double click resets
BUTTONS = [
    "zoom",
    "pan",
    "select",
    "lasso",
    "zoomin",
    "zoomout",
    "autoscale",
    "resetscale",
    "toimage",
]


def figures_of(report: Report) -> list[Any]:
    """The report's charts, methods in the order of their speed."""
    from ..bench.charts import charts
    from ..bench.files import by_speed

    return [
        figure.update_layout(
            template="none",
            title={"text": title, "font": {"size": 15}, "y": 0.98},
            margin={"t": 50},
            height=max(540, figure.layout.height or 0),
            legend=LEGEND,
            modebar={"remove": BUTTONS},
        )
        for title, figure in charts(by_speed(report))
    ]


def read(path: Path | None) -> list[Any]:
    """[HTML, figures ...] of a report file, or a sentence and no figures."""
    from ..bench import load_report

    blank = [gr.update(value=None, visible=False)] * PLOTS
    if path is None:
        return [
            (
                "There is no report in <code>assets/bench</code>; make one with <code>python -m"
                " specdemo bench</code>, or run a short one below."
            ),
            *blank,
        ]
    try:
        return shown(load_report(path))
    except UserError as error:
        return [escape(str(error)), *blank]


def shown(report: Report, most: int = PLOTS) -> list[Any]:
    """[HTML, figures ...] of a report, at most so many figures."""
    from ..bench.html import download_links, fragment

    figures = [gr.update(value=figure, visible=True) for figure in figures_of(report)[:most]]
    blank = [gr.update(value=None, visible=False)] * (most - len(figures))
    return [download_links(report) + fragment(report), *figures, *blank]


def report_view(name: str, plots: int) -> list[Any]:
    """Components of one report, [HTML, plots ...]: the first chart, what it says, the others."""

    def plot(i: int) -> gr.Plot:
        return gr.Plot(show_label=False, visible=False, elem_id=f"{name}-plot-{i}")

    first = plot(0)
    words = gr.HTML("", elem_id=f"{name}-words")
    return [words, first, *(plot(i) for i in range(1, plots))]


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
    outputs = report_view("bench", PLOTS)
    quiet: dict[str, Any] = {"api_visibility": "private", "show_progress": "minimal"}

    def open_report(name: str | None) -> list[Any]:
        return read(files.get(name or ""))

    choice.input(open_report, choice, outputs, queue=False, **quiet)
    tab.select(open_report, choice, outputs, queue=False, **quiet)
    if server.backend.can_bench:
        short_bench(server, queue)


def short_bench(server: Server, queue: str) -> None:
    """The controls of a short run, what its buttons call, and its report below them."""
    with gr.Accordion(
        "Measure here: a short run on this machine", open=False, elem_id="bench-here"
    ):
        gr.Markdown(
            "Every prompt is decoded plainly, with each method, and plainly again; the two plain"
            " runs show how much of a difference is noise. A few prompts give a rough estimate, a"
            " report from the command line a good one."
        )
        methods = gr.CheckboxGroup(
            [(m.title, name) for name, m in server.methods.items() if name != "ar"],
            value=[n for n in ("best", "block") if n in server.methods],
            label="Methods",
        )
        prompts = gr.CheckboxGroup(
            list(EXAMPLES), value=list(EXAMPLES)[:3], label=f"Prompts (at most {MAX_PROMPTS})"
        )
        tokens = gr.Slider(16, MAX_TOKENS, value=48, step=8, label="New tokens")
        with gr.Row():
            run = gr.Button("Measure", variant="primary", elem_id="bench-run")
            stop = gr.Button("Stop measuring", elem_id="bench-stop")
        state = gr.Markdown("", elem_id="bench-status")
        outputs = report_view("here", HERE)

    def enter(request: gr.Request, names: Any, texts: Any, new: Any) -> str:
        try:
            return server.enter_bench(request, make_bench_job(names, texts, new, server.methods))
        except UserError as error:
            server.queue.stop(session_of(request))
            return str(error)

    def take_turn(request: gr.Request) -> Iterator[list[Any]]:
        yield from measure(server, request)

    def end(request: gr.Request) -> str:
        ticket = server.queue.stop(session_of(request))
        if ticket is None or not isinstance(ticket.request, BenchJob):
            return "Nothing is being measured."
        return "Stopping …" if ticket.started else "Stopped before it began."

    at_once: dict[str, Any] = {
        "queue": False,
        "show_progress": "hidden",
        "api_visibility": "private",
        "trigger_mode": "multiple",
    }
    run.click(enter, [methods, prompts, tokens], state, **at_once).then(
        take_turn,
        None,
        [state, *outputs],
        concurrency_id=queue,
        concurrency_limit=1,
        trigger_mode="multiple",
        show_progress="full",
        show_progress_on=[state],
        api_visibility="private",
    )
    stop.click(end, None, state, **at_once)


def measure(server: Server, request: gr.Request) -> Iterator[list[Any]]:
    """The short bench of a page whose turn has come: [status, HTML, figures ...]; what stands there
    is kept where there is no new report.
    """
    session = session_of(request)
    ticket = server.queue.begin(session, BenchJob)
    keep = [gr.skip()] * (1 + HERE)
    if ticket is None:
        yield [gr.skip(), *keep]
        return
    try:
        if isinstance(ticket.request, UserError):
            raise ticket.request
        job: BenchJob = ticket.request
        pair = next(iter(server.pairs))
        for message, fraction in server.engines.wait(pair):
            yield [progress_text(message, fraction), *keep]
        items = [(t.split(":")[0].lower(), EXAMPLES[t]) for t in job.prompts]
        steps = server.backend.bench(
            server.engines.get(pair), job.methods, items, job.new_tokens, ticket.cancel
        )
        for fraction, report, what in server.engines.thread.each(steps):
            if server.readers.unread(session):
                ticket.cancel.set()
            yield [progress_text(what, fraction), *(shown(report, HERE) if report else keep)]
        if ticket.cancel.is_set():
            yield ["Stopped; what was measured before stays.", *keep]
    except UserError as error:
        yield [str(error), *keep]
    except Exception:
        traceback.print_exc()
        yield [BROKEN, *keep]
    finally:
        ticket.cancel.set()
        server.queue.finish(ticket)


def make_bench_job(names: Any, texts: Any, new: Any, methods: Mapping[str, Any]) -> BenchJob:
    """Raises UserError where the choices are none, or too many."""
    known = [n for n in methods if isinstance(names, list) and n in names]
    prompts = [t for t in EXAMPLES if isinstance(texts, list) and t in texts]
    if not known:
        raise UserError("No method is chosen; tick at least one.")
    if not prompts:
        raise UserError("No prompt is chosen; tick at least one.")
    if len(prompts) > MAX_PROMPTS:
        raise UserError(
            f"{len(prompts)} prompts are chosen and a short run takes at most {MAX_PROMPTS}; untick"
            f" {len(prompts) - MAX_PROMPTS}."
        )
    if not isinstance(new, (int, float)) or not 1 <= new <= MAX_TOKENS:
        raise UserError(f"Choose from 1 to {MAX_TOKENS} new tokens.")
    return BenchJob(known, prompts, int(new))
