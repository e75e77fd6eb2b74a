"""Beside the choice of a pair: its dtype, whether it fits into this machine's memory, and a target
or drafter of one's own. A public Space shows none of it.
"""

from __future__ import annotations

from collections.abc import Mapping
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
            info="Fewer bits: a pass reads less memory, which makes it faster where memory is what"
            " it waits for, and larger targets fit; while it loads, int4 needs working copies.",
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

    def about(self, pair: str, dtype: str = "") -> list[Any]:
        """Updates of dtype and fits for a pair; ``dtype`` is chosen if it can run here."""
        if not self.shown:
            return [gr.skip(), gr.skip()]
        dtypes, lines = self.server.backend.fits(self.server.pairs[pair])
        words = "\n".join(f"- {line}" for line in lines)
        chosen = dtype if dtype in dtypes else ""
        return [gr.update(choices=dtype_choices(dtypes), value=chosen), words]

    def wrong_dtype(self, query: Mapping[str, str], first: str) -> list[str]:
        """``["dtype"]`` where a link names one that cannot be chosen here."""
        dtype, pair = query.get("dtype"), self._named(query, first)
        if not dtype:
            return []
        dtypes = self.server.backend.fits(self.server.pairs[pair])[0] if self.shown else []
        return [] if dtype in dtypes else ["dtype"]

    def _named(self, query: Mapping[str, str], first: str) -> str:
        """The pair of a link."""
        pair = query.get("pair", "")
        return pair if pair in self.server.pairs else first

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
            query = request.query_params
            return self.about(self._named(query, first), query.get("dtype", ""))

        demo.load(on_load_fits, None, [self.dtype, self.fits], concurrency_limit=None, **quiet)
