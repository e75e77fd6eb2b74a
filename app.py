"""Hugging Face Space and local start: ``python app.py``."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
ZERO_GPU = bool(os.environ.get("SPACES_ZERO_GPU"))


def parse_arguments(words: list[str]) -> argparse.Namespace:
    """The options of the command; an unknown one ends the program with a sentence."""
    parser = argparse.ArgumentParser(
        prog="app.py",
        description="Start the page. Ctrl-C ends it.",
        epilog="docs/deployment.md says which environment variables there are.",
    )
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        help="where to listen (default: GRADIO_SERVER_NAME, or this machine only); 0.0.0.0 lets"
        " others on the network in",
    )
    parser.add_argument(
        "--port",
        type=int,
        metavar="N",
        help="default: GRADIO_SERVER_PORT, or the first free one from 7860 on",
    )
    parser.add_argument(
        "--share",
        action="store_true",
        help="also make a public link that goes through Gradio's servers, for a week at most",
    )
    parser.add_argument(
        "--dtype",
        choices=("bfloat16", "float32", "int4"),
        help="of the targets: bfloat16 where it is native, else float32, if not said; int4: weights"
        " of 4 bits, on a CPU",
    )
    parser.add_argument(
        "--target",
        metavar="DIR_OR_ID",
        help="a target of your own as the first pair: a folder, or a hub id owner/name",
    )
    parser.add_argument(
        "--drafter",
        metavar="DIR_OR_ID",
        help="a drafter's folder or hub id for that target, or for the first pair",
    )
    parser.add_argument(
        "--thinking",
        choices=("on", "off"),
        help="turn the thinking mode of that target on or off, where its chat template knows"
        " enable_thinking",
    )
    args = parser.parse_args(words)
    if args.port is not None and not 1 <= args.port <= 65_535:
        parser.error(f"--port must be from 1 to 65535, not {args.port}")
    given = os.environ.get("GRADIO_SERVER_PORT")  # Gradio reads it at its import
    if given is not None and not (
        given.isascii() and given.isdecimal() and 1 <= int(given[:6]) <= 65_535
    ):
        parser.error(f"GRADIO_SERVER_PORT must be a number from 1 to 65535, not {given!r:.80}")
    return args


# before the page is imported: that takes seconds
options = parse_arguments(sys.argv[1:] if __name__ == "__main__" else [])

if ZERO_GPU:
    import spaces  # before torch; installed only there

from specdemo.errors import UserError, first_line  # noqa: E402
from specdemo.ui.backend import Backend, ZeroGpuBackend  # noqa: E402
from specdemo.ui.controls import Limits  # noqa: E402
from specdemo.ui.page import build_demo, launch_options  # noqa: E402

if TYPE_CHECKING:
    from specdemo.models.pairs import Pair


def zero_gpu_backend() -> ZeroGpuBackend:
    """With the page's first pair in memory: a worker process then begins with it on its GPU."""
    from specdemo.models.pairs import load_pairs
    from specdemo.ui.gpu_worker import GpuWorker, gpu_seconds

    worker = GpuWorker()
    worker.load(next(iter(load_pairs())))
    return ZeroGpuBackend(spaces.GPU(duration=gpu_seconds)(worker.stream))


def own_pairs() -> dict[str, Pair]:
    """The pair that the options name, if they do, by its id."""
    given = (options.target, options.drafter, options.thinking)
    if not any(given):
        return {}
    if ZERO_GPU:
        raise UserError("On ZeroGPU the pair is the first one of models.yaml; name it there.")
    from specdemo.commands.options import thinking_of
    from specdemo.models.own_pair import chosen_pair
    from specdemo.models.pairs import load_pairs

    first = next(iter(load_pairs()))
    pair = chosen_pair(first, options.target, options.drafter, thinking_of(options.thinking))
    return {pair.id: pair}


try:
    own, limits = own_pairs(), Limits.from_env()
    demo = build_demo(
        zero_gpu_backend() if ZERO_GPU else Backend(options.dtype, own),
        # who comes through a shared link seems to be on this machine
        limits=replace(limits, own_models=limits.own_models and not options.share),
    )
except UserError as error:  # models.yaml
    sys.exit(f"app.py: {error}")

if __name__ == "__main__":
    try:
        demo.launch(
            server_name=options.host,
            server_port=options.port,
            share=options.share,
            **launch_options(demo),
        )
    except OSError as error:  # the port is taken, or the address is not this machine's
        sys.exit(f"app.py: the page cannot be served there ({first_line(error)}); choose another.")
