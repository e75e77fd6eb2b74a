"""Loading an engine: the target in memory, checked against the library, and measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UserError
from ..huge_pages import use_huge_pages
from .calibrate import calibrate
from .engine import Engine
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
    return Engine(loaded, target, calibrate(target))
