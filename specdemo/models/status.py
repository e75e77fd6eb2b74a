"""What of each pair is on this computer, for ``python -m specdemo models``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import UserError
from .fetch import drafter_present, find_target, no_target
from .pairs import Pair, load_pairs


def pair_status(path: str | Path | None = None) -> list[dict[str, Any]]:
    """One dict a pair: id, title, license, size, hardware, dtypes, thinking, notes, ``target``
    (folder or None), ``drafters`` (kind to present or not), ``state`` (ready, to fetch, not here,
    no drafter) and ``missing`` in words; of a served pair also ``drafts``, what it drafts with.
    Touches no network.
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
    missing = trouble or ([] if target else [f"target, {_whence(pair.target[0])}"])
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
        else "not here"
        if not target and all("path" in source for source in pair.target)
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


def _whence(source: dict[str, str]) -> str:
    """Where a target comes from that is not here, or why it does not come."""
    if "path" in source:
        return f"of which {no_target(Path(source['path']))}"
    place = f"package {source['wheel']}" if "wheel" in source else f"hub ({source['hub']})"
    return f"from the {place} at the first run"
