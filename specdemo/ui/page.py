"""The page: three tabs (race, lesson, bench) and one public endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from ..bench.html import stylesheet
from ..drafters import METHODS
from ..errors import first_line
from ..paths import ROOT
from . import lesson
from .backend import Backend
from .bench_tab import bench_tab
from .component import STATIC, head_script, race_view
from .controls import Limits
from .gradio_queue import QUEUE, GuardedQueue
from .http_limits import HttpLimits
from .jobs import RaceForm
from .link_preview import TITLE, LinkPreview
from .plotly_script import PLOTLY_ROUTE
from .race_tab import RaceTab, first_method
from .server import Server

ASSETS = ROOT / "assets"
# browsers that keep nothing for this page throw
SWITCH_THEME = (
    "() => { const dark = document.body.classList.toggle('dark');"
    " try { localStorage.setItem('specdemo-theme', dark ? 'dark' : 'light'); } catch {} }"
)
KEPT_THEME = (
    "() => { let kept = null;"
    " try { kept = localStorage.getItem('specdemo-theme'); } catch {}"
    " if (kept) document.body.classList.toggle('dark', kept === 'dark'); }"
)
PRESENT = (
    "() => { document.activeElement.blur();"
    " document.dispatchEvent(new KeyboardEvent('keydown', { key: 'p' })); }"
)
SHARE = "() => { document.querySelector('#race-view .sd-share').click(); }"
UNLISTED: dict[str, Any] = {"api_visibility": "private", "queue": False}
SESSIONS = 100  # of Gradio's records of pages, the most recent ones


def theme() -> gr.themes.Base:
    """System fonts only: nothing is fetched from elsewhere. Quiet text and the primary button's
    ground are darker than Gradio's, whose contrast is below 4.5.
    """
    base = gr.themes.Base(
        primary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.slate,
        text_size=gr.themes.sizes.text_lg,
        font=["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"],
        font_mono=["ui-monospace", "Consolas", "monospace"],
    )
    return base.set(
        body_text_color_subdued="*neutral_600",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
    )


class Page(gr.Blocks):
    """The page, and what stands behind it."""

    races: Server

    async def preprocess_data(self, *args: Any, **more: Any) -> Any:
        """Values that do not fit the controls, which no visitor can send, are refused without a
        traceback in the log.
        """
        try:
            return await super().preprocess_data(*args, **more)
        except Exception as error:
            raise gr.Error(
                f"These values cannot be read ({first_line(error)}); reload the page, or see “Use"
                " via API” at its foot.",
                print_exception=False,
            ) from None


def launch_options(demo: Page) -> dict[str, Any]:
    """What ``demo.launch`` needs besides ports."""
    limits = demo.races.limits
    return {
        "theme": theme(),
        "css": (STATIC / "page.css").read_text(encoding="utf-8") + stylesheet(),
        "head": f"<script>{head_script()}</script>",
        "footer_links": ["api", "settings"],
        "show_error": True,
        "ssr_mode": False,
        "max_file_size": 1,  # nothing is uploaded; HttpLimits refuses the route as well
        "run_history": False,
        "enable_monitoring": False,  # each visit of its address would write a key into the log
        # one holds 0.2 MB and nothing that a page needs: its ticket is the server's
        "state_session_capacity": SESSIONS,
        "i18n": gr.I18n(en={"common.complete": "Complete"}),  # Gradio says the bare key
        "app_kwargs": {
            "routes": [PLOTLY_ROUTE],
            "middleware": [
                Middleware(
                    HttpLimits,
                    readers=demo.races.readers,
                    max_body=limits.body_bytes,
                    fns=demo.fns,
                ),
                Middleware(LinkPreview),
            ],
        },
    }


def build_demo(
    backend: Backend | None = None,
    methods: Mapping[str, Any] | None = None,
    pairs: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    assets: Path = ASSETS,
) -> Page:
    """The whole page. Everything that it shows or runs can be replaced, which is how it is
    tested.
    """
    limits = limits or Limits.from_env()
    if pairs is None:
        from ..models.pairs import load_pairs

        pairs = load_pairs()
        own = dict(getattr(backend, "own", {}))
        pairs = own | {name: pair for name, pair in pairs.items() if name not in own}
        if not limits.every_pair:
            # a public Space loads nothing but the embedded pair
            first = next(iter(pairs))
            pairs = {name: p for name, p in pairs.items() if name == first or p.engine}
    server = Server(backend or Backend(), methods or METHODS, pairs, limits, assets / "traces")
    with Page(title=TITLE, analytics_enabled=False) as demo:
        with gr.Row(elem_id="top"):
            gr.Markdown("# SpecDemo", elem_id="title")
            gr.Button("Theme", elem_id="theme", size="sm").click(None, js=SWITCH_THEME, **UNLISTED)
            gr.Button("Present", elem_id="present", size="sm").click(None, js=PRESENT, **UNLISTED)
            gr.Button("Share", elem_id="share", size="sm").click(None, js=SHARE, **UNLISTED)
        with gr.Tabs(elem_id="tabs"):
            with gr.Tab("Race", id="race"):
                RaceTab(demo, server, QUEUE)
            with gr.Tab("Lesson", id="lesson"):
                content = lesson.content(assets, list(server.traces))
                if content:
                    race_view(None, server.view_functions(), content, elem_id="lesson-view")
                else:
                    gr.Markdown("The lesson's recordings are missing (`assets/traces`).")
            with gr.Tab("Bench", id="bench") as tab:
                bench_tab(tab, server, assets / "bench", QUEUE)
        demo.load(None, None, None, js=KEPT_THEME, **UNLISTED)
        add_api(server)
        demo.unload(server.forget)
    # not open: no call skips the queue. The size is a last resort, GuardedQueue counts
    demo.queue(max_size=4 * (limits.queue + limits.calls), api_open=False)
    demo.races = server
    server.line = GuardedQueue(demo, server)
    server.queue.in_line = server.line.sessions
    return demo


def add_api(server: Server) -> None:
    """The public endpoint ``/race``."""
    default, first_pair = first_method(server), next(iter(server.pairs))
    defaults = RaceForm("", default, first_pair, "match", 64, 0.0, 1.0, 0, {}, "", "ar", {})

    # the annotation of the result is what Gradio documents: one message
    def race(  # type: ignore[misc]
        request: gr.Request,
        prompt: str,
        method: str = default,
        max_new_tokens: int = 64,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        rule: str = "match",
        pair: str = first_pair,
        params: dict = {},  # noqa: B006 - Gradio reads the default's type
        against: str = "ar",
        against_params: dict = {},  # noqa: B006
        dtype: str = "",
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
            against: the left lane's method; plain decoding, "ar", runs beside it in any case.
            against_params: that method's parameters.
            dtype: what the target's weights are in, of those that its pair offers; empty: the usual
                one here.
        """
        form = RaceForm(
            prompt,
            method,
            pair,
            rule,
            max_new_tokens,
            temperature,
            top_p,
            seed,
            params,
            dtype,
            against=against,
            against_params=against_params,
        )
        yield from server.api(form.filled(defaults), request)

    gr.api(race, api_name="race", concurrency_id=QUEUE, concurrency_limit=1)
