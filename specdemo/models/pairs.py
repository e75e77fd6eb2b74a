"""models.yaml: which target goes with which drafters."""

from __future__ import annotations

import difflib
import json
import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from ..errors import UserError
from ..paths import ROOT
from .kinds import ROLES

DTYPES = ("bf16", "fp32", "fp16", "8bit", "4bit")
SOURCE_KEYS = {
    "wheel": {"wheel", "sha256", "file", "file_sha256"},
    "hub": {"hub", "revision"},
    "path": {"path"},
}


@dataclass(frozen=True)
class Pair:
    """A target and its drafters.

    Attributes:
        target: sources in order, each a dict with one of the keys ``wheel``, ``hub``, ``path``.
        drafters: kind to an absolute folder, or to a hub id written ``hub:owner/name``.
        dtypes: what the target may be loaded in, the preferred one first.
        thinking: for targets with a thinking mode, whether the drafters were trained with it on;
            None where there is none.
        blocked: why its diffusion drafter cannot be loaded here, or None.
    """

    id: str
    title: str
    license: str
    size: str
    target: tuple[dict[str, str], ...]
    drafters: dict[str, str] = field(default_factory=dict)
    hardware: str = ""
    dtypes: tuple[str, ...] = ("bf16", "fp32")
    thinking: bool | None = None
    blocked: str | None = None
    remote_code: bool = False
    notes: str = ""


def load_pairs(path: str | Path | None = None) -> dict[str, Pair]:
    """All pairs by id, in the order of the file (default: the one SPECDEMO_MODELS names, or
    models.yaml beside app.py).
    """
    path = Path(path or os.environ.get("SPECDEMO_MODELS") or ROOT / "models.yaml").expanduser()
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}); it lists the models and belongs beside"
            " app.py, or where SPECDEMO_MODELS says."
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} is not valid YAML ({' '.join(str(error).split())}); correct it."
        ) from None
    entries = data.get("pairs") if isinstance(data, dict) else None
    if not isinstance(entries, dict) or not entries:
        raise UserError(
            f"{path} has no “pairs:” with entries; see the comment at the top of the file that came"
            " with SpecDemo."
        )
    return {str(name): _pair(str(name), entry, path) for name, entry in entries.items()}


def get_pair(id: str, path: str | Path | None = None) -> Pair:
    """The pair of that id; an unknown one is refused with the nearest known."""
    pairs = load_pairs(path)
    if id in pairs:
        return pairs[id]
    near = difflib.get_close_matches(str(id).lower(), pairs, n=1, cutoff=0.4)
    hint = f"did you mean “{near[0]}”? " if near else ""
    raise UserError(f"There is no pair “{id}”; {hint}known are: {', '.join(pairs)}.")


def with_drafter(pair: Pair, folder: str | Path | None) -> Pair:
    """``pair`` with the drafter in ``folder``, as ``train`` leaves it, in the place of its own:
    every diffusion method runs on it, or, if it is autoregressive, ``ar-draft``. Without a folder
    ``pair`` as it is."""
    if not folder:
        return pair
    folder = Path(folder).expanduser().resolve()
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        ar = config.get("model_type") == "specdemo_ar_drafter"
    except (OSError, ValueError, AttributeError):
        raise UserError(
            f"There is no drafter in {folder}; give the folder “drafter” that a finished training"
            " run left."
        ) from None
    own = {kind: place for kind, place in pair.drafters.items() if (kind == "ar") != ar}
    return replace(pair, drafters=own | {"ar" if ar else "block": str(folder)})


def _pair(name: str, entry: Any, path: Path) -> Pair:
    where = f"{path}, pair “{name}”"
    if not isinstance(entry, dict):
        raise UserError(
            f"{where}: an entry must be a mapping with title, license, size and target."
        )
    allowed = {f.name for f in fields(Pair)} - {"id"}
    for key in entry:
        if key not in allowed:
            near = difflib.get_close_matches(str(key), allowed, n=1)
            raise UserError(
                f"{where}: there is no setting"
                f" “{key}”{f'; did you mean “{near[0]}”' if near else ''}; allowed are"
                f" {', '.join(sorted(allowed))}."
            )
    missing = [k for k in ("title", "license", "size", "target") if not entry.get(k)]
    if missing:
        raise UserError(f"{where}: “{missing[0]}” is missing.")
    values = {k: v for k, v in entry.items() if k not in ("target", "drafters", "dtypes")}
    for key in ("thinking", "remote_code"):
        if values.get(key) not in (None, True, False):
            raise UserError(f"{where}: “{key}” must be true or false, not {values[key]!r}.")
    dtypes = tuple(entry.get("dtypes") or ("bf16", "fp32"))
    if wrong := [d for d in dtypes if d not in DTYPES]:
        raise UserError(f"{where}: dtypes may be {', '.join(DTYPES)}, not {wrong[0]!r}.")
    return Pair(
        id=name,
        target=_sources(entry["target"], where, path),
        drafters=_drafters(entry.get("drafters") or {}, where, path),
        dtypes=dtypes,
        **values,
    )


def _sources(value: Any, where: str, path: Path) -> tuple[dict[str, str], ...]:
    sources = []
    for source in value if isinstance(value, list) else [value]:
        kind = next((k for k in SOURCE_KEYS if isinstance(source, dict) and k in source), None)
        if kind is None or not all(isinstance(v, str) for v in source.values()):
            raise UserError(
                f"{where}: a target source is one of {{wheel: …}}, {{hub: owner/name}}, {{path:"
                f" folder}}, not {source!r}."
            )
        if unknown := source.keys() - SOURCE_KEYS[kind]:
            raise UserError(
                f"{where}: a {kind} source has no “{min(unknown)}”; it has"
                f" {', '.join(sorted(SOURCE_KEYS[kind]))}."
            )
        if kind == "wheel" and SOURCE_KEYS["wheel"] - source.keys():
            raise UserError(
                f"{where}: a wheel source needs {', '.join(sorted(SOURCE_KEYS['wheel']))}."
            )
        sources.append(
            {**source, "path": str(_folder(source["path"], path))}
            if kind == "path"
            else dict(source)
        )
    return tuple(sources)


def _drafters(value: Any, where: str, path: Path) -> dict[str, str]:
    if not isinstance(value, dict):
        raise UserError(
            f"{where}: drafters is a mapping from kind ({', '.join(ROLES)}) to a folder or {{hub:"
            " owner/name}."
        )
    out = {}
    for kind, place in value.items():
        if kind not in ROLES:
            raise UserError(
                f"{where}: there is no drafter kind “{kind}”; kinds are {', '.join(ROLES)}."
            )
        if isinstance(place, dict) and isinstance(place.get("hub"), str):
            out[kind] = f"hub:{place['hub']}"
        elif isinstance(place, str) and place:
            out[kind] = str(_folder(place, path))
        else:
            raise UserError(
                f"{where}: the drafter “{kind}” must be a folder or {{hub: owner/name}}, not"
                f" {place!r}."
            )
    return out


def _folder(place: str, path: Path) -> Path:
    return (path.resolve().parent / Path(place).expanduser()).resolve()
