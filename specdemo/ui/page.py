"""The page: controls, the race view, the lesson, the bench, and one public endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from ..bench.html import stylesheet
from ..paths import ROOT
from . import charts, lesson
from .backend import Backend
from .bench_tab import bench_tab
from .component import head_script, race_view
from .controls import Limits, MethodControls, from_link, rule_choices
from .examples import EXAMPLES
from .server import Server, pack

ASSETS = ROOT / "assets"
FIRST = ("best", "d2sd", "specdiff", "block")  # which recording a visitor sees first
QUEUE = "gpu"  # one race at a time, whoever asks

CSS = """
.gradio-container { width: 100%; max-width: min(1400px, 100%) !important; margin: 0 auto !important; overflow: clip !important; }
.gradio-container .js-plotly-plot text { fill: var(--body-text-color) !important; }
@media (max-width: 600px) { .sd-words > * { flex: 1 1 100% !important; } #status { min-height: 0; } .main.fillable { padding: 8px 10px !important; } .sd-title p { display: none; } }
.sd-title .prose { display: flex; gap: 4px 16px; align-items: baseline; flex-wrap: wrap; } .sd-title h1 { margin: 0; font-size: 1.6rem; } .sd-title p { margin: 0; }
.sd-tight { gap: 8px; } .sd-words { flex-wrap: wrap !important; gap: 0 16px; } #explain { min-width: min(420px, 100%); flex: 5; } #status { min-width: min(260px, 100%); flex: 2; min-height: 48px; align-content: center; }
body.sd-loaded #plot { display: none; }
body.sd-racing #status [data-testid="status-tracker"] { display: none !important; }
#race-view .html-container, #lesson-view .html-container { padding: 0; }
"""


def theme() -> gr.themes.Base:
    """System fonts only: nothing is fetched from elsewhere."""
    return gr.themes.Base(
        primary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.slate,
        text_size=gr.themes.sizes.text_lg,
        font=["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"],
        font_mono=["ui-monospace", "Consolas", "monospace"],
    )


def launch_options() -> dict[str, Any]:
    """What ``demo.launch`` needs beside ports."""
    return {
        "theme": theme(),
        "css": CSS + stylesheet(),
        "head": f"<script>{head_script()}</script>",
        "footer_links": ["api", "settings"],
        "show_error": True,
        "ssr_mode": False,
        "max_file_size": "1mb",
    }


def build_demo(
    backend: Backend | None = None,
    methods: Mapping[str, Any] | None = None,
    pairs: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    assets: Path = ASSETS,
) -> gr.Blocks:
    """The whole page. Everything it shows beside models can be replaced, which is how it is
    tested.
    """
    limits = limits or Limits.from_env()
    if methods is None:
        from ..drafters import METHODS as methods
    if pairs is None:
        from ..models.pairs import load_pairs

        pairs = load_pairs()
        if not limits.every_pair:
            # a public Space loads nothing but the embedded pair
            pairs = dict(list(pairs.items())[:1])
    server = Server(backend or Backend(), methods, pairs, limits, assets / "traces")
    with gr.Blocks(title="SpecDemo", analytics_enabled=False) as demo:
        gr.Markdown(
            "# SpecDemo\nThe same text, written twice: word by word, and by checking whole blocks"
            " that a small diffusion model guessed.",
            elem_classes="sd-title",
        )
        with gr.Tabs():
            with gr.Tab("Race", id="race"):
                race_tab(demo, server)
            with gr.Tab("Lesson", id="lesson"):
                steps = lesson.available(lesson.STEPS, list(server.traces))
                if steps:
                    race_view(None, server.server_functions(), steps, elem_id="lesson-view")
                else:
                    gr.Markdown("The recordings of the lesson are not here (`assets/traces`).")
            with gr.Tab("Bench", id="bench") as tab:
                bench_tab(tab, server, assets / "bench", QUEUE)
        add_api(server)
        demo.unload(server.forget)
    demo.queue(max_size=limits.queue)
    idle_quietly(demo)
    return demo


def idle_quietly(demo: gr.Blocks) -> None:
    """Let Gradio look for work 20 times a second instead of 1,000, as it does on Windows: its
    looking alone took 6 % of a core away from the race.
    """
    for name, seconds in (("sleep_when_free", 0.05), ("progress_update_sleep_when_free", 0.1)):
        if hasattr(demo._queue, name):
            setattr(demo._queue, name, seconds)


def first_name(server: Server) -> str | None:
    return next((n for n in (*FIRST, *server.traces) if n in server.traces), None)


def first_value(server: Server) -> dict[str, Any] | None:
    """The recording that plays while the models load."""
    name = first_name(server)
    return (
        {
            "run": f"recorded-{name}",
            "from": 0,
            "events": pack(server.recorded(name)),
            "live": False,
            "badge": "recording",
        }
        if name
        else None
    )


def race_tab(demo: gr.Blocks, server: Server) -> None:
    methods, pairs, limits = server.methods, server.pairs, server.limits
    default = next((n for n in FIRST if n in methods), next(iter(methods)))
    first_pair = next(iter(pairs))
    with gr.Row():
        with gr.Column(scale=5, min_width=300):
            prompt = gr.Textbox(
                next(iter(EXAMPLES.values())),
                label="Prompt",
                lines=3,
                max_lines=5,
                elem_id="prompt",
            )
        with gr.Column(scale=4, min_width=300, elem_classes="sd-tight"):
            with gr.Row(elem_classes="sd-tight"):
                method = gr.Dropdown(
                    [(m.title, name) for name, m in methods.items()],
                    value=default,
                    label="Method",
                    elem_id="method",
                    min_width=200,
                    scale=3,
                )
                example = gr.Dropdown(
                    [("choose …", ""), *((name, name) for name in EXAMPLES)],
                    label="Example prompts",
                    value="",
                    elem_id="example",
                    min_width=140,
                    scale=2,
                )
            with gr.Row(elem_classes="sd-tight"):
                run = gr.Button("Run", variant="primary", elem_id="run", min_width=110, scale=2)
                stop = gr.Button("Stop", variant="stop", elem_id="stop", min_width=80, scale=1)
                step = gr.Button("Step", elem_id="step", min_width=80, scale=1)
    with gr.Row(equal_height=True, elem_classes="sd-words"):
        explain = gr.Markdown(methods[default].explain, elem_id="explain")
        status = gr.Markdown("", elem_id="status")
    with gr.Accordion("Settings", open=False, elem_id="settings"):
        with gr.Row():
            pair = gr.Dropdown(
                [(p.title, name) for name, p in pairs.items()],
                value=first_pair,
                label="Pair of models",
                elem_id="pair",
            )
            rule = gr.Dropdown(
                rule_choices(methods[default]),
                value=methods[default].rules[0],
                label="Acceptance rule",
                elem_id="rule",
            )
            new_tokens = gr.Slider(
                1,
                limits.new_tokens,
                value=min(96, limits.new_tokens),
                step=1,
                label="New tokens",
                elem_id="new-tokens",
            )
        with gr.Row():
            temperature = gr.Slider(
                0,
                2,
                value=0,
                step=0.05,
                label="Temperature",
                info="0 = always the likeliest token",
                elem_id="temperature",
            )
            top_p = gr.Slider(0.05, 1, value=1, step=0.05, label="Top-p", elem_id="top-p")
            # its limits are the server's to name, in a sentence
            seed = gr.Number(0, label="Seed", info="a whole number", elem_id="seed")
        controls = MethodControls(methods, default)
    view = race_view(first_value(server), server.server_functions(), elem_id="race-view")
    with gr.Accordion(
        "Tokens against time, to zoom and hover (drawn at the end of a race on this machine)",
        open=True,
    ):
        plot = gr.Plot(
            charts.tokens_over_time(server.recorded(first_name(server))),
            show_label=False,
            elem_id="plot",
        )

    everything = [
        prompt,
        method,
        pair,
        rule,
        new_tokens,
        temperature,
        top_p,
        seed,
        *controls.components,
    ]

    def ask_of(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*values[:8], controls.values(values[1], list(values[8:])))

    def on_enter(request: gr.Request, *values: Any) -> tuple[Any, str]:
        return server.enter(request, *ask_of(values))

    def on_step(request: gr.Request, *values: Any) -> tuple[Any, Any]:
        """Once more with nothing changed: on to the next round. Otherwise a run begins, standing
        before its first round.
        """
        return server.step(request, *ask_of(values))

    quiet = {"api_visibility": "private", "show_progress": "hidden"}
    at_once = quiet | {"queue": False, "trigger_mode": "multiple"}
    in_line = {
        "concurrency_id": QUEUE,
        "concurrency_limit": 1,
        "trigger_mode": "multiple",
        "api_visibility": "private",
        "show_progress": "full",
        "show_progress_on": [status],
    }
    ticket = gr.State("")  # read when its turn comes
    gr.on([run.click, prompt.submit], on_enter, everything, [view, ticket], **at_once).then(
        server.run, ticket, [view, plot], **in_line
    )
    step.click(on_step, everything, [view, ticket], **at_once).then(
        server.run, ticket, [view, plot], **in_line
    )
    stop.click(server.stop, None, view, **at_once)
    example.input(lambda name: EXAMPLES.get(name, gr.skip()), example, prompt, **quiet, queue=False)

    def on_method(name: str) -> list[Any]:
        return [
            methods[name].explain,
            gr.update(choices=rule_choices(methods[name]), value=methods[name].rules[0]),
            *controls.show(name),
        ]

    method.input(
        on_method, method, [explain, rule, *controls.groups.values()], **quiet, queue=False
    )

    def on_load(request: gr.Request) -> list[Any]:
        link, wrong = from_link(dict(request.query_params), methods, list(pairs), limits)
        name = link.get("method", default)
        # what the link does not name is left alone: on a slow machine the visitor may have chosen
        # already
        rules = (
            gr.update(
                choices=rule_choices(methods[name]), value=link.get("rule", methods[name].rules[0])
            )
            if {"method", "rule"} & set(link)
            else gr.skip()
        )
        chosen = (
            [methods[name].explain, *controls.show(name)]
            if "method" in link
            else [gr.skip()] * (1 + len(controls.groups))
        )
        plain = [
            gr.update(value=link[key]) if key in link else gr.skip()
            for key in ("prompt", "method", "pair")
        ]
        rest = [
            gr.update(value=link[key]) if key in link else gr.skip()
            for key in ("new", "temperature", "top_p", "seed")
        ]
        news = (
            {
                "refusal": (
                    f"This link asks for what is not here ({', '.join(wrong)}); the usual values"
                    " were put in their place."
                )
            }
            if wrong
            else gr.skip()
        )
        return [*plain, rules, *rest, *controls.fill(name, link.get("params", {})), *chosen, news]

    demo.load(
        on_load, None, [*everything, explain, *controls.groups.values(), view], **quiet, queue=False
    )
    demo.load(server.loading, pair, status, concurrency_limit=None, **quiet)
    pair.input(server.loading, pair, status, concurrency_limit=None, **quiet)


def add_api(server: Server) -> None:
    default = next((n for n in FIRST if n in server.methods), next(iter(server.methods)))
    first_pair = next(iter(server.pairs))

    def race(
        prompt: str,
        method: str = default,
        max_new_tokens: int = 64,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        rule: str = "match",
        pair: str = first_pair,
        params: dict = {},  # noqa: B006 - Gradio reads the default's type
    ) -> str:
        """Run one race and stream its events.

        Every message is JSON text: a list of new events, each an object with a "kind". The last
        event is "done"; its "result" holds both
        lanes' tokens, seconds and tokens per second, the speed-up, and whether both wrote the same.

        Args:
            prompt: the user's message.
            method: how to draft.
            max_new_tokens: length limit of the answer.
            temperature: 0 picks the likeliest token.
            top_p: nucleus sampling, 1 = off.
            seed: of the sampling noise; both lanes use the same.
            rule: match, ratio or point-mass.
            pair: target and drafters.
            params: the method's own parameters by name; others keep their defaults.
        """
        yield from server.api(
            prompt, method, pair, rule, max_new_tokens, temperature, top_p, seed, params
        )

    gr.api(race, api_name="race", concurrency_id=QUEUE, concurrency_limit=1)
