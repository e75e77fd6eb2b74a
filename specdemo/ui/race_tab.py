"""The Race tab: what it shows, and which of the server's functions each control calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from ..request import SAMPLING_LIMITS
from .component import race_view
from .controls import MethodControls, from_link, method_choices, rule_choices, rule_help
from .examples import EXAMPLES
from .found_again import KEPT_RUN, find_again
from .jobs import RaceForm
from .messages import Error, Events, Run, pack
from .pair_parts import PairParts
from .server import Server, session_of

SERVED = (
    "An engine serves this pair: it drafts by its own method and accepts by its own rule; the"
    " method chosen here does nothing."
)
FIRST = ("best", "d2sd", "specdiff", "block")  # which method, and which recording, is shown first
QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
AT_ONCE = QUIET | {"queue": False, "trigger_mode": "multiple"}


def first_method(server: Server) -> str:
    return next((n for n in FIRST if n in server.methods), next(iter(server.methods)))


def first_recording(server: Server) -> dict[str, Any] | None:
    """The message with the recording that plays while the model loads."""
    name = next((n for n in (*FIRST, *server.traces) if n in server.traces), None)
    if name is None:
        return None
    run = Run(f"recorded-{name}", live=False, badge="recording")
    return Events(run, 0, pack(server.recorded(name))).to_dict()


class RaceTab:
    """Built inside ``gr.Blocks``; ``queue`` is the concurrency id that all races share."""

    def __init__(self, demo: gr.Blocks, server: Server, queue: str):
        self.server, self.queue = server, queue
        self.methods, self.default = server.methods, first_method(server)
        self.first_pair = next(iter(server.pairs))
        with gr.Row(elem_id="command"):
            self._command()
            with gr.Accordion("Settings", open=False, elem_id="settings"):
                self._settings()
        with gr.Row(elem_id="words"):
            self.explain = gr.Markdown(
                self._explained(self.first_pair, self.default), elem_id="explain"
            )
            self.status = gr.Markdown("", elem_id="status")
        self.view = race_view(
            first_recording(server),
            server.view_functions(),
            recordings=list(server.traces),
            elem_id="race-view",
        )
        # in the order of RaceForm, but for the parameters
        self.form = [
            self.prompt,
            self.method,
            self.pair,
            self.rule,
            self.new_tokens,
            self.temperature,
            self.top_p,
            self.seed,
            self.pair_parts.dtype,
            self.against,
            self.against_params,
            *self.controls.components,
        ]
        self._on_buttons()
        self._on_choices()
        self._on_load(demo)

    # -- what it shows -----------------------------------------------------------------------------

    def _command(self) -> None:
        """One row: the prompt in one line, which grows when it has the focus, and what runs it."""
        bare: dict[str, Any] = {"container": False, "show_label": False}
        # lists short enough to see: nothing to type, and no keyboard over a phone's screen
        listed: dict[str, Any] = bare | {"filterable": False, "min_width": 90}
        self.prompt = gr.Textbox(
            next(iter(EXAMPLES.values())),
            label="Prompt",
            lines=1,
            max_lines=8,
            elem_id="prompt",
            **bare,
        )
        self.example = gr.Dropdown(
            [("Examples", ""), *((name, name) for name in EXAMPLES)],
            label="Example prompts",
            value="",
            elem_id="example",
            **listed,
        )
        self.method = gr.Dropdown(
            method_choices(self.methods),
            value=self.default,
            label="Method",
            elem_id="method",
            **listed,
        )
        self.run = gr.Button("Run", variant="primary", elem_id="run", min_width=40)
        self.stop = gr.Button("Stop", variant="stop", elem_id="stop", min_width=40)
        self.step = gr.Button("Step", elem_id="step", min_width=40)

    def _settings(self) -> None:
        limits = self.server.limits
        # the line below the buttons is cut where it is long
        whole = gr.Markdown(self._explained(self.first_pair, self.default), elem_id="explain-whole")
        self.explain_whole = whole
        with gr.Group():
            self.pair = gr.Dropdown(
                self.server.pair_choices(),
                value=self.first_pair,
                label="Target and drafter",
                elem_id="pair",
            )
            self.pair_parts = PairParts(self.server)
            self.rule = gr.Dropdown(
                rule_choices(self.methods[self.default]),
                value=self.methods[self.default].rules[0],
                label="Acceptance rule",
                info=rule_help(self.methods),
                elem_id="rule",
            )
            self.new_tokens = gr.Slider(
                1,
                limits.new_tokens,
                value=min(96, limits.new_tokens),
                step=1,
                label="New tokens",
                elem_id="new-tokens",
            )
        self.measure = gr.Button(
            "Measure passes again",
            size="sm",
            visible=self.server.backend.can_measure and limits.every_pair,
            elem_id="measure",
        )
        with gr.Group():
            coldest, hottest, _ = SAMPLING_LIMITS["temperature"]
            self.temperature = gr.Slider(
                coldest,
                hottest,
                value=0,
                step=0.05,
                label="Temperature",
                info=f"0 = greedy decoding; at most {hottest:g}",
                elem_id="temperature",
            )
            self.top_p = gr.Slider(0.05, 1, value=1, step=0.05, label="Top-p", elem_id="top-p")
            # its limits are the server's to name, in a sentence
            self.seed = gr.Number(0, label="Seed", info="a whole number", elem_id="seed")
        with gr.Group():
            self._left_lane()
        self.controls = MethodControls(self.methods, self.default)

    def _left_lane(self) -> None:
        others = [(m.title, name) for name, m in self.methods.items() if name != "ar"]
        self.against = gr.Dropdown(
            [("Plain decoding", "ar"), *others],
            value="ar",
            label="Left lane",
            info="plain decoding runs beside two methods too, and both are measured against it",
            elem_id="against",
        )
        self.against_params = gr.Textbox(
            "",
            label="Left lane's parameters",
            info="for instance gamma=4, budget=20; empty: its defaults",
            elem_id="against-params",
            visible=False,
        )

    # -- what it calls -----------------------------------------------------------------------------

    def _form(self, values: tuple[Any, ...]) -> RaceForm:
        params = self.controls.values(values[1], list(values[11:]))
        return RaceForm(*[*values[:8], params, *values[8:11]])

    def _on_buttons(self) -> None:
        def on_run(request: gr.Request, *values: Any) -> Any:
            return self.server.enter(request, self._form(values))

        def on_step(request: gr.Request, *values: Any) -> Any:
            """Again with nothing changed: on to the next round. Otherwise a run begins that waits
            before its first round.
            """
            return self.server.step(request, self._form(values))

        when_its_turn_comes: dict[str, Any] = {
            "fn": self.server.run,
            "inputs": None,
            "outputs": self.view,
            "concurrency_id": self.queue,
            "concurrency_limit": 1,
            "trigger_mode": "multiple",
            "api_visibility": "private",
            "show_progress": "hidden",  # the view says itself what a race waits for
        }
        run = gr.on([self.run.click, self.prompt.submit], on_run, self.form, self.view, **AT_ONCE)
        step = self.step.click(on_step, self.form, self.view, **AT_ONCE)
        for begun in (run, step):  # which may have fetched or loaded another pair
            begun.then(**when_its_turn_comes).then(**self._loading())
        self.stop.click(self.server.stop, None, self.view, **AT_ONCE)
        if self.measure.visible:
            self.measure.click(self.server.measure_again, self.pair, self.status, **QUIET)

    def _explained(self, pair: str, name: str) -> str:
        """What drafts for this pair: the method, or the engine that serves it."""
        found = self.server.pairs.get(pair)
        return self.methods[name].explain if found is None or found.engine is None else SERVED

    def _on_choices(self) -> None:
        self.explain.change(None, self.explain, self.explain_whole, js="(text) => text", **QUIET)

        def on_method(name: str, pair: str) -> list[Any]:
            method = self.methods[name]
            return [
                self._explained(pair, name),
                gr.update(choices=rule_choices(method), value=method.rules[0]),
                *self.controls.show(name),
            ]

        def on_example(name: str) -> Any:
            return EXAMPLES.get(name, gr.skip())

        def on_against(name: str) -> Any:
            return gr.update(visible=name != "ar", value="")

        self.against.input(on_against, self.against, self.against_params, **QUIET, queue=False)
        self.example.input(on_example, self.example, self.prompt, **QUIET, queue=False)
        outputs = [self.explain, self.rule, *self.controls.groups.values()]
        self.method.input(on_method, [self.method, self.pair], outputs, **QUIET, queue=False)
        chosen = [self.pair, self.method]
        self.pair.input(self._explained, chosen, self.explain, **QUIET, queue=False)
        gr.on([self.pair.input, self.method.input, self.pair_parts.dtype.input], **self._loading())

        self.pair_parts.on_choices(self.pair, QUIET)

    def _loading(self) -> dict[str, Any]:
        """What says of the chosen pair whether it is in memory."""

        def say(request: gr.Request, pair: str, method: str, dtype: str) -> Iterator[str]:
            yield from self.server.loading(pair, method, session_of(request), dtype)

        return {
            "fn": say,
            "inputs": [self.pair, self.method, self.pair_parts.dtype],
            "outputs": self.status,
            "concurrency_limit": None,
            "trigger_mode": "multiple",
            **QUIET,
        }

    def _on_load(self, demo: gr.Blocks) -> None:
        def on_load(request: gr.Request) -> list[Any]:
            return self._from_link(dict(request.query_params))

        def on_load_model(request: gr.Request) -> Iterator[str]:
            """Of the pair and method that the link names: the dropdowns may not show them yet."""
            pair = request.query_params.get("pair", "")
            method = request.query_params.get("method", "")
            yield from self.server.loading(
                pair if pair in self.server.pairs else self.first_pair,
                method if method in self.methods else self.default,
                session_of(request),
                request.query_params.get("dtype", ""),
            )

        outputs = [*self.form, self.explain, *self.controls.groups.values(), self.view]
        demo.load(on_load, None, outputs, **QUIET, queue=False)
        demo.load(on_load_model, None, self.status, concurrency_limit=None, **QUIET)
        self.pair_parts.on_load(demo, self.first_pair, QUIET)

        def on_load_run(name: str, request: gr.Request) -> Iterator[Any]:
            yield from find_again(self.server, name, request)

        kept = gr.Textbox(visible=False)  # filled by the browser alone
        demo.load(on_load_run, kept, self.view, js=KEPT_RUN, concurrency_limit=None, **QUIET)

    def _from_link(self, query: dict[str, str]) -> list[Any]:
        """Updates of the form, the explanation, the groups of controls and the view from a share
        link. What the link does not name is left alone: on a slow machine the visitor may have
        chosen already.
        """
        link, wrong = from_link(
            query, self.methods, list(self.server.pairs), self.server.limits, self.default
        )
        wrong += self.pair_parts.wrong_dtype(query, self.first_pair)
        name = link.get("method", self.default)
        method = self.methods[name]

        def update(key: str) -> Any:
            return gr.update(value=link[key]) if key in link else gr.skip()

        pair = gr.update(choices=self.server.pair_choices())  # another may have come meanwhile
        if "pair" in link:
            pair["value"] = link["pair"]

        rule, explain, groups = gr.skip(), gr.skip(), [gr.skip()] * len(self.controls.groups)
        if "method" in link or "rule" in link:
            rule = gr.update(choices=rule_choices(method), value=link.get("rule", method.rules[0]))
        if "method" in link or "pair" in link:
            explain = self._explained(link.get("pair", self.first_pair), name)
        if "method" in link:
            groups = self.controls.show(name)
        news = gr.skip()
        if wrong:
            news = Error(
                f"This link has unknown or invalid values ({', '.join(wrong)}); the usual values"
                " are used instead."
            ).to_dict()
        return [
            *map(update, ("prompt", "method")),
            pair,
            rule,
            *map(update, ("new", "temperature", "top_p", "seed")),
            gr.skip(),
            update("against"),
            gr.update(visible=True, value=link.get("against_params", ""))
            if link.get("against", "ar") != "ar"
            else gr.skip(),
            *self.controls.fill(name, link.get("params", {})),
            explain,
            *groups,
            news,
        ]
