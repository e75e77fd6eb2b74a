"""A pair of one's own: a target or drafter that models.yaml does not name, a folder or a hub id."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ..errors import UserError
from ..files import read_json
from ..paths import given_path
from .fetch import drafter_folder
from .kinds import is_autoregressive, stands_alone
from .pairs import PAIR_ID, Pair, get_pair

DTYPES = ("bf16", "fp32", "int4", "8bit", "4bit")  # of a target that no list describes


def with_drafter(pair: Pair, folder: str | Path | None) -> Pair:
    """``pair`` with the drafter in ``folder``, as ``train`` leaves it or a published diffusion
    language model, in the place of its own: every diffusion method runs on it, or, if it is
    autoregressive, ``ar-draft``. Without a folder ``pair`` as it is."""
    if not folder:
        return pair
    if pair.engine is not None:
        raise UserError(f"An engine serves {pair.id} with its own drafter; leave --drafter out.")
    source = own_source(folder, "The drafter")
    place = f"hub:{source['hub']}" if "hub" in source else source["path"]
    folder = Path(place)
    if "hub" in source:
        folder = drafter_folder(place)
    try:
        config = read_json(folder / "config.json")
        ar, whole = is_autoregressive(config), stands_alone(config)
    except (OSError, ValueError, AttributeError):
        raise UserError(
            f"There is no drafter in {folder}; give the folder “drafter” that a finished training"
            " run left."
        ) from None
    own = {kind: place for kind, place in pair.drafters.items() if (kind == "ar") != ar}
    role = "ar" if ar else "diffusion" if whole else "block"
    return replace(pair, drafters=own | {role: place})


def chosen_pair(
    id: str | None, target: str | None, drafter: str | None, thinking: bool | None = None
) -> Pair:
    """The pair of that id (None: the default one), or one of ``target`` (a folder or a hub id)
    alone, with ``drafter`` in the place of its own.

    Args:
        thinking: turns the target's thinking mode on or off; None: as the pair says, or else the
            chat template.
    """
    if target is None:
        pair = get_pair(id)
    else:
        source = own_source(target, "The target")
        name = Path(source.get("hub") or source["path"]).name
        plain = re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-") or "target"
        pair = Pair(f"own-{plain}", name, "see its card", "see its card", (source,), dtypes=DTYPES)
    if thinking is not None and pair.engine is not None:
        raise UserError(f"An engine serves {pair.id} with its own template; leave --thinking out.")
    pair = with_drafter(pair, drafter)
    return pair if thinking is None else replace(pair, thinking=thinking)


def own_source(given: str | Path, what: str) -> dict[str, str]:
    """A folder of this computer, or, where there is none of that name, a hub id ``owner/name``,
    which may have ``hub:`` before it.

    Raises:
        UserError: an empty name, which would be the folder one happens to be in.
    """
    if not str(given).strip():
        raise UserError(f"{what} has no name; give a folder, or a hub id owner/name.")
    folder, id = given_path(given, what).resolve(), str(given).removeprefix("hub:")
    if not folder.exists() and re.fullmatch(rf"{PAIR_ID.pattern}/{PAIR_ID.pattern}", id):
        return {"hub": id}
    return {"path": str(folder)}
