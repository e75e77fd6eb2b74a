"""Loading an engine: the target in memory, checked against the library, and measured, unless a
profile already says what that would find.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from ..errors import UserError
from ..hardware import thread_counts
from ..huge_pages import use_huge_pages
from ..models.pairs import Pair, get_pair
from ..models.spread import where
from .calibrate import calibrate, equal_widths
from .check_target import check_against
from .cost import Measured
from .engine import Engine
from .general.check import check_general, own_logits, text_ids
from .general.target import GeneralTarget, max_positions
from .graphs.load import make_rounds
from .pace import Pace
from .profile import Profile, ProfileFile
from .roofline import machine_speeds
from .step import AnyTarget, why_not_fast
from .target import Target

if TYPE_CHECKING:
    from ..models.fetch import Progress
    from ..models.load import Loaded

FEWEST = 96  # positions: the widest pass of a check, and some text before it
_NOT_CAPTURED = "Passes through transformers' own model are not captured."


def load_engine(
    pair: str | Pair | None = None,
    dtype: str | None = None,
    device: str | None = None,
    progress: Progress | None = None,
    remeasure: bool = False,
    drafters: Sequence[str] = ("block", "diffusion"),
) -> Engine:
    """Load a pair, by its id or as it is; None: the default one. What measuring it found is kept in
    the cache folder; ``SPECDEMO_PROFILES`` names another folder in which to look too.

    Args:
        remeasure: measure and check it in any case.
        drafters: kinds that are loaded with the target, as far as they are on this computer; a race
            loads the others when it needs them.

    Raises:
        UserError: it cannot be loaded.
    """
    from ..models.fetch import cache_root
    from ..models.load import load_target
    from ..models.needs import refuse_too_large

    pair = pair if isinstance(pair, Pair) else get_pair(pair)
    refuse_too_large(pair, dtype, device)
    return make_engine(
        load_target(pair, dtype, device, progress),
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
    from ..models.foreign_code import no_foreign_code
    from ..models.load import check_target_folder

    folder = target_folder(pair, progress)
    config, _ = check_target_folder(folder, pair)
    with torch.device("meta"), no_foreign_code(folder, "target"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        if why_not_fast(config):
            GeneralTarget(model)
        else:
            Target(model)


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
    say = progress or (lambda message, fraction: None)
    say("Preparing the target (about a quarter of a minute the first time on a machine)", None)
    threads = thread_counts(loaded.device)
    if torch.get_num_threads() != threads[0]:
        torch.set_num_threads(threads[0])
    shipped = os.environ.get("SPECDEMO_PROFILES")

    def profile_of(target: AnyTarget) -> ProfileFile | None:
        if profiles is None or where(loaded.model):
            return None  # what is where is another each time
        return ProfileFile(target, loaded.model, profiles, Path(shipped) if shipped else None)

    target, why_general, file, known, gap = _checked_target(loaded, profile_of, remeasure)
    load_drafters(loaded, drafters)
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
            costs = calibrate(target, _widths(target), threads)
        keep(costs)
    pace = Pace(costs)
    rounds, why = make_rounds(target) if isinstance(target, Target) else (None, _NOT_CAPTURED)
    speeds = machine_speeds(target.device, target.dtype)
    return Engine(
        loaded,
        target,
        pace.costs,
        rounds,
        why,
        pace=pace,
        keep=keep,
        why_general=why_general,
        speeds=speeds,
    )


class _Checked(NamedTuple):
    """A target that computes what its model does: what the fast step lacks for it, its profile,
    what that says, and the largest gap found.
    """

    target: AnyTarget
    why_general: str
    file: ProfileFile | None
    known: Profile | None
    gap: float


def _checked_target(
    loaded: Loaded, profile_of: Callable[[AnyTarget], ProfileFile | None], remeasure: bool
) -> _Checked:
    """The fast step where it computes what the model does, else the general one.

    Raises:
        UserError: neither does, or it reads too few tokens to be checked.
    """
    if (positions := max_positions(loaded.model.config)) < FEWEST:
        raise UserError(
            f"This target reads at most {positions} tokens, and its passes are checked with up to"
            f" {FEWEST}; choose another target."
        )
    four_bits = loaded.quantized == "int4"
    why = ("" if four_bits else where(loaded.model) or _in_bits(loaded)) or why_not_fast(
        loaded.model.config
    )
    if why and four_bits:
        raise UserError(
            f"Weights of 4 bits run in our own step alone, which lacks {why}; choose bf16."
        )
    if not why:
        # with weights of 4 bits there is no other step, and the reason is told
        with suppress(*([] if four_bits else [UserError])):
            fast = Target(loaded.model, four_bits)
            file = profile_of(fast)
            known = None if file is None or remeasure else file.read()
            gap = known.gap if known else check_against(fast, loaded.model)
            return _Checked(fast, "", file, known, gap)
        why = "its own code computes something else than the fast step"
    target = GeneralTarget(loaded.model)
    file = profile_of(target)
    known = None if file is None or remeasure else file.read()
    if known:
        target.use_row_products()
        return _Checked(target, why, file, known, known.gap)
    ids = text_ids(loaded.tokenizer, target)
    # what bitsandbytes itself computes is no measure: it rounds inputs, too
    theirs = None if loaded.quantized else own_logits(target, ids)
    target.use_row_products()
    gap = check_general(target, ids, own_logits(target, ids) if theirs is None else theirs)
    return _Checked(target, why, file, known, gap)


def _in_bits(loaded: Loaded) -> str:
    return f"weights in {loaded.quantized.removesuffix('bit')} bits" if loaded.quantized else ""


def _widths(target: AnyTarget) -> list[int]:
    """See :func:`.calibrate.equal_widths`.

    Raises:
        UserError: there are none.
    """
    widths = equal_widths(target)
    if not widths:
        raise UserError(
            f"With this target ({target.config.model_type}) a row's bits depend on its place in a"
            " pass here, so that drafting could change the text; choose another target or dtype."
        )
    return widths


def load_drafters(loaded: Loaded, kinds: Sequence[str] = ("block", "diffusion")) -> None:
    """Those of its pair that are on this computer. One that cannot be loaded is told by the races
    that need it: others do not.
    """
    from ..models.drafters import load_drafter
    from ..models.fetch import drafter_present

    for kind in kinds:
        place = loaded.pair.drafters.get(kind)
        if place and drafter_present(place):
            with suppress(UserError):
                load_drafter(loaded.pair, kind, loaded)
