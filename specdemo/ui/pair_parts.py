"""Beside the choice of a pair: its dtype, whether it fits into this machine's memory, and a target
or drafter of one's own. A public Space shows none of it.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from ..errors import UserError
from .choice import DTYPES, THINKING, add_own, dtype_choices
from .server import Server


class PairParts:
    """Built under the dropdown of pairs, inside the settings."""

    def __init__(self, server: Server):
        self.server = server
        self.shown = server.limits.every_pair
        self.dtype = gr.Dropdown(
            # all there are; a pair's own come with it
            dtype_choices(list(DTYPES)),
            value="",
            label="Weights in",
            elem_id="dtype",
            visible=self.shown,
        )
        self.fits = gr.Markdown("", elem_id="fits", visible=self.shown)
        with gr.Accordion(
            "A target or drafter of your own",
            open=False,
            elem_id="own-pair",
            visible=server.limits.own_models,
        ):
            self.target = gr.Textbox(
                label="Target", info="a folder, or a hub id owner/name", elem_id="own-target"
            )
            self.drafter = gr.Textbox(
                label="Drafter", info="a folder or a hub id; may be left out", elem_id="own-drafter"
            )
            self.thinking = gr.Dropdown(
                list(THINKING), value=next(iter(THINKING)), label="Thinking", elem_id="own-thinking"
            )
            self.use = gr.Button("Use these", elem_id="own-use")
            self.said = gr.Markdown("", elem_id="own-said", container=True)

    def about(self, pair: str) -> list[Any]:
        """Updates of dtype and fits for a pair."""
        if not self.shown:
            return [gr.skip(), gr.skip()]
        dtypes, lines = self.server.backend.fits(self.server.pairs[pair])
        words = "\n".join(f"- {line}" for line in lines)
        return [gr.update(choices=dtype_choices(dtypes), value=""), words]

    def on_choices(self, pair: gr.Dropdown, quiet: dict[str, Any]) -> None:
        """What another pair, or one of the visitor's own, changes."""
        pair.input(self.about, pair, [self.dtype, self.fits], concurrency_limit=None, **quiet)

        def on_use(request: gr.Request, pair: str, *given: Any) -> list[Any]:
            try:
                key = add_own(self.server, request, pair, *given)
            except UserError as error:
                return [gr.skip(), str(error), gr.skip(), gr.skip()]
            choices = self.server.pair_choices()
            return [
                gr.update(choices=choices, value=key),
                "It is the pair that is chosen now; **Run** loads it.",
                *self.about(key),
            ]

        self.use.click(
            on_use,
            [pair, self.target, self.drafter, self.thinking],
            [pair, self.said, self.dtype, self.fits],
            concurrency_limit=None,
            **quiet,
        )

    def on_load(self, demo: gr.Blocks, first: str, quiet: dict[str, Any]) -> None:
        """About the pair that the link names, once the page is there."""
        if not self.shown:
            return

        def on_load_fits(request: gr.Request) -> list[Any]:
            pair = request.query_params.get("pair", "")
            return self.about(pair if pair in self.server.pairs else first)

        demo.load(on_load_fits, None, [self.dtype, self.fits], concurrency_limit=None, **quiet)
