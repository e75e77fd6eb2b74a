"""Loading an engine: the target in memory, checked against the library, and measured, unless a
profile already says what that would find.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ..errors import UserError
from ..hardware import thread_counts
from ..huge_pages import use_huge_pages
from .calibrate import calibrate, equal_widths
from .check_target import check_against
from .cost import Measured
from .engine import Engine
from .graphs.load import make_rounds
from .pace import Pace
from .profile import ProfileFile
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
    remeasure: bool = False,
    drafters: Sequence[str] = ("block",),
) -> Engine:
    """Load a pair, by its id or as it is. What measuring it found is kept in the cache folder;
    ``SPECDEMO_PROFILES`` names another folder in which to look too.

    Args:
        remeasure: measure and check it in any case.
        drafters: kinds that are loaded with the target, as far as they are on this computer; a race
            loads the others when it needs them.

    Raises:
        UserError: it cannot be loaded, or its dtype cannot be run yet (said before it is fetched).
    """
    if dtype in ("4bit", "8bit"):
        raise UserError(f"The engine does not run {dtype} targets yet; choose dtype bf16.")
    from ..models.fetch import cache_root
    from ..models.load import load_target
    from ..models.pairs import get_pair

    return make_engine(
        load_target(get_pair(pair) if isinstance(pair, str) else pair, dtype, device, progress),
        progress,
        cache_root() / "profiles",
        remeasure,
        drafters,
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


def make_engine(
    loaded: Loaded,
    progress: Progress | None = None,
    profiles: Path | None = None,
    remeasure: bool = False,
    drafters: Sequence[str] = (),
) -> Engine:
    """An engine on a target that is already in memory: checked against the library's own forward
    pass, then measured.

    Args:
        profiles: a folder in which what was found is looked up, and kept; None: neither.
        remeasure: do not look it up.
        drafters: as in :func:`load_engine`.
    """
    if loaded.quantized:
        raise UserError(
            f"The engine does not run {loaded.quantized} targets yet; choose dtype bf16."
        )
    say = progress or (lambda message, fraction: None)
    say("Preparing the target", None)
    threads = thread_counts(loaded.device)
    if torch.get_num_threads() != threads[0]:
        torch.set_num_threads(threads[0])
    target = Target(loaded.model)
    file = None
    if profiles is not None:
        shipped = os.environ.get("SPECDEMO_PROFILES")
        file = ProfileFile(target, loaded.model, profiles, Path(shipped) if shipped else None)
    known = None if file is None or remeasure else file.read()
    gap = known.gap if known else check_against(target, loaded.model)
    _load_drafters(loaded, drafters)
    if target.device.type == "cpu":
        use_huge_pages()

    def keep(found: Measured) -> None:
        if file is not None:
            file.write(gap, found)

    if known:
        costs = known.costs
    else:
        say("Measuring the target's passes", None)
        with torch.inference_mode():
            costs = calibrate(target, equal_widths(target), threads)
        keep(costs)
    pace = Pace(costs)
    rounds, why = make_rounds(target)
    return Engine(loaded, target, pace.costs, rounds, why, pace=pace, keep=keep)


def _load_drafters(loaded: Loaded, kinds: Sequence[str]) -> None:
    """One that cannot be loaded is told by the races that need it: others do not."""
    from ..models.drafters import load_drafter
    from ..models.fetch import drafter_present

    for kind in kinds:
        place = loaded.pair.drafters.get(kind)
        if place and drafter_present(place):
            with suppress(UserError):
                load_drafter(loaded.pair, kind, loaded)
