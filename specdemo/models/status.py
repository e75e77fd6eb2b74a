"""What of each pair is on this computer, for ``python -m specdemo models``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import UserError
from .fetch import drafter_present, find_target
from .pairs import Pair, load_pairs


def pair_status(path: str | Path | None = None) -> list[dict[str, Any]]:
    """One dict a pair: id, title, license, size, hardware, dtypes, thinking, notes, ``target``
    (folder or None), ``drafters`` (kind to present or not), ``state`` (ready, to fetch, no drafter)
    and ``missing`` in words; of a served pair also ``drafts``, what it drafts with. Touches no
    network.
    """
    return [status_of(pair) for pair in load_pairs(path).values()]


def status_of(pair: Pair) -> dict[str, Any]:
    """The dict of one pair, see :func:`pair_status`."""
    if pair.engine is not None:
        return _described(pair) | {
            "target": None,
            "drafters": {},
            "drafts": pair.engine.drafts,
            "state": f"served by {pair.engine.title}",
            "missing": [],
        }
    try:
        target, trouble = find_target(pair), []
    except UserError as error:
        target, trouble = None, [str(error)]
    drafters = {kind: drafter_present(place) for kind, place in pair.drafters.items()}
    missing = trouble or (
        [] if target else [f"target, from {_source_word(pair.target[0])} at the first run"]
    )
    missing += [
        f"{kind} drafter ({pair.drafters[kind]})" for kind, here in drafters.items() if not here
    ]
    if not drafters:
        missing.append(
            f"diffusion drafter: {pair.blocked or 'name one in models.yaml or train it'}"
        )
    state = (
        "no drafter"
        if not drafters
        else "ready"
        if target and all(drafters.values())
        else "to fetch"
    )
    return _described(pair) | {
        "target": str(target) if target else None,
        "drafters": drafters,
        "state": state,
        "missing": missing,
    }


def _described(pair: Pair) -> dict[str, Any]:
    return {
        "id": pair.id,
        "title": pair.title,
        "license": pair.license,
        "size": pair.size,
        "hardware": pair.hardware,
        "dtypes": list(pair.dtypes),
        "thinking": pair.thinking,
        "notes": pair.notes,
    }


def _source_word(source: dict[str, str]) -> str:
    if "wheel" in source:
        return f"the package {source['wheel']}"
    return f"the hub ({source['hub']})" if "hub" in source else f"the folder {source['path']}"
