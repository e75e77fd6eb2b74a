"""Loading an engine: the target in memory, checked against the library, and measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..errors import UserError
from ..huge_pages import use_huge_pages
from .calibrate import calibrate
from .engine import Engine
from .graphs.load import make_rounds
from .target import Target

if TYPE_CHECKING:
    from ..models.fetch import Progress
    from ..models.load import Loaded
    from ..models.pairs import Pair


def load_engine(
    pair: str | Pair = "smollm2-135m",
    dtype: str | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Engine:
    """Load a pair, by its id or as it is, and measure it. Takes a few seconds once the weights are
    in the cache.

    Raises:
        UserError: it cannot be loaded, or its dtype cannot be run yet (said before it is fetched).
    """
    if dtype in ("4bit", "8bit"):
        raise UserError(f"The engine does not run {dtype} targets yet; choose dtype bf16.")
    from ..models.load import load_target
    from ..models.pairs import get_pair

    return make_engine(
        load_target(get_pair(pair) if isinstance(pair, str) else pair, dtype, device, progress),
        progress,
    )


def check_without_weights(pair: Pair, progress: Progress | None = None) -> None:
    """Fetch the pair's target if need be, and refuse what :func:`load_engine` would refuse, as far
    as that can be told without its weights: another engine may have to be given up for them.

    Raises:
        UserError: it cannot be fetched, is damaged, or of a kind that cannot be run.
    """
    from transformers import AutoModelForCausalLM

    from ..models.fetch import target_folder
    from ..models.load import check_target_folder

    config, _ = check_target_folder(target_folder(pair, progress), pair)
    with torch.device("meta"):
        Target(AutoModelForCausalLM.from_config(config))


def make_engine(loaded: Loaded, progress: Progress | None = None) -> Engine:
    """An engine on a target that is already in memory: checked against the library's own forward
    pass, then measured.
    """
    if loaded.quantized:
        raise UserError(
            f"The engine does not run {loaded.quantized} targets yet; choose dtype bf16."
        )
    on_progress = progress or (lambda message, fraction: None)
    on_progress("Preparing the target", None)
    target = Target(loaded.model)
    target.check_against(loaded.model)
    if target.device.type == "cpu":
        use_huge_pages()
    on_progress("Measuring one pass of the target", None)
    costs = calibrate(target)
    rounds, why = make_rounds(target)
    return Engine(loaded, target, costs, rounds, why)
