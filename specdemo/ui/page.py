"""The page: three tabs (race, lesson, bench) and one public endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from ..bench.html import stylesheet
from ..drafters import METHODS
from ..paths import ROOT
from . import lesson
from .backend import Backend
from .bench_tab import bench_tab
from .component import STATIC, head_script, race_view
from .controls import Limits
from .jobs import RaceForm
from .race_tab import RaceTab, first_method
from .server import Server

ASSETS = ROOT / "assets"
QUEUE = "gpu"  # one race at a time, whoever asks


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
    """What ``demo.launch`` needs besides ports."""
    return {
        "theme": theme(),
        "css": (STATIC / "page.css").read_text(encoding="utf-8") + stylesheet(),
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
    """The whole page. Everything that it shows or runs can be replaced, which is how it is
    tested.
    """
    limits = limits or Limits.from_env()
    if pairs is None:
        from ..models.pairs import load_pairs

        pairs = load_pairs()
        if not limits.every_pair:
            # a public Space loads nothing but the embedded pair
            pairs = dict(list(pairs.items())[:1])
    server = Server(backend or Backend(), methods or METHODS, pairs, limits, assets / "traces")
    with gr.Blocks(title="SpecDemo", analytics_enabled=False) as demo:
        gr.Markdown(
            "# SpecDemo\nThe same text, decoded twice: one token per pass of the model, and with"
            " whole blocks drafted by a small diffusion model and verified in one pass.",
            elem_classes="sd-title",
        )
        with gr.Tabs():
            with gr.Tab("Race", id="race"):
                RaceTab(demo, server, QUEUE)
            with gr.Tab("Lesson", id="lesson"):
                steps = lesson.available(lesson.STEPS, list(server.traces))
                if steps:
                    race_view(None, server.view_functions(), steps, elem_id="lesson-view")
                else:
                    gr.Markdown("The lesson's recordings are missing (`assets/traces`).")
            with gr.Tab("Bench", id="bench") as tab:
                bench_tab(tab, server, assets / "bench", QUEUE)
        add_api(server)
        demo.unload(server.forget)
    demo.queue(max_size=limits.queue)
    poll_less(demo)
    return demo


def poll_less(demo: gr.Blocks) -> None:
    """Let Gradio look for work 20 times a second instead of 1,000, as it does on Windows: the
    polling alone took 6 % of a core away from the race.
    """
    for name, seconds in (("sleep_when_free", 0.05), ("progress_update_sleep_when_free", 0.1)):
        if hasattr(demo._queue, name):
            setattr(demo._queue, name, seconds)


def add_api(server: Server) -> None:
    """The public endpoint ``/race``."""
    default, first_pair = first_method(server), next(iter(server.pairs))

    # the annotation of the result is what Gradio documents: one message
    def race(  # type: ignore[misc]
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
        event is "done"; its "result" holds both lanes' tokens, seconds and tokens per second, the
        speed-up, and whether both lanes wrote the same tokens.

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
            RaceForm(prompt, method, pair, rule, max_new_tokens, temperature, top_p, seed, params)
        )

    gr.api(race, api_name="race", concurrency_id=QUEUE, concurrency_limit=1)
