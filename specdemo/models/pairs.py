"""models.yaml: which target goes with which drafters."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    Tag,
    ValidationError,
)

from ..errors import UserError, shown
from ..files import read_at_most
from ..paths import ROOT, given_path
from ..prompts import check_text
from .kinds import ROLES
from .served import Served, attach_allowed, is_missing, read_entry

Dtype = Literal["bf16", "fp32", "fp16", "int4", "8bit", "4bit"]
DTYPES: tuple[str, ...] = get_args(Dtype)
DEFAULT = "smollm2-135m"
WHERE_NONE = f"default: {DEFAULT}, or the only one of your models.yaml"  # for help texts
PAIR_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MAX_LIST_BYTES = 1_000_000
_HUB_ID = re.compile(rf"{PAIR_ID.pattern}(/{PAIR_ID.pattern})?")


@dataclass(frozen=True)
class Pair:
    """A target and its drafters.

    Attributes:
        target: sources in order, each a dict with one of the keys ``wheel``, ``hub``, ``path``.
        drafters: kind to an absolute folder, or to a hub id written ``hub:owner/name`` or
            ``hub:owner/name@revision``.
        dtypes: what the target may be loaded in, the preferred one first.
        thinking: for targets with a thinking mode, whether the drafters were trained with it on;
            None where there is none.
        ngram: absolute file of n-gram counts of a task's text (:mod:`.ngram_file`), None: none.
        blocked: why its diffusion drafter cannot be loaded here, or None.
        engine: where an engine serves it; it then has neither target nor drafters here.
    """

    id: str
    title: str
    license: str
    size: str
    target: tuple[dict[str, Any], ...]
    drafters: dict[str, str] = field(default_factory=dict)
    hardware: str = ""
    dtypes: tuple[str, ...] = ("bf16", "fp32")
    thinking: bool | None = None
    ngram: str | None = None
    blocked: str | None = None
    notes: str = ""
    engine: Served | None = None


def load_pairs(path: str | Path | None = None) -> dict[str, Pair]:
    """All pairs by id, in the order of the file (default: the one SPECDEMO_MODELS names, or
    models.yaml beside app.py). Those that an engine serves are left out on a public Space.
    """
    path = given_path(path or models_file(), "The list of models")
    models = read_models(path)
    entries = models.get("pairs")
    if not isinstance(entries, dict) or not entries:
        raise UserError(
            f"{path} has no “pairs:” with entries; see the comment at the top of the file that came"
            " with SpecDemo."
        )
    if unknown := [key for key in models if key not in ("pairs", "shapes")]:
        raise UserError(
            f"{path}: {shown(unknown[0])} is neither “pairs” nor “shapes”, which such a file has;"
            " correct it or take it out."
        )
    for name in entries:
        if not isinstance(name, str) or not PAIR_ID.fullmatch(name):
            raise UserError(
                f"{path}: {shown(name)} cannot be a pair's id; use letters, digits, “-”, “_” and"
                " “.”, in quotes if it is a number."
            )
    pairs = {name: _pair(name, entry, path) for name, entry in entries.items()}
    return {name: pair for name, pair in pairs.items() if not pair.engine or attach_allowed()}


def models_file() -> str | Path:
    """The list of models: the one SPECDEMO_MODELS names, or models.yaml beside app.py."""
    return os.environ.get("SPECDEMO_MODELS") or ROOT / "models.yaml"


def read_models(path: Path) -> dict[Any, Any]:
    """The list of models as it stands in the file; empty where it is no mapping.

    Raises:
        UserError: it cannot be read.
    """
    try:
        raw = read_at_most(path, MAX_LIST_BYTES)
        if raw is None:
            raise ValueError("it is larger than a list of models")
        data = yaml.load(raw.decode("utf-8"), _Loader)
        if _holds_itself(data, [], set()):
            raise ValueError("a part of it is an alias of what it stands in, which has no end")
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}); it lists the models and belongs beside"
            " app.py, or where SPECDEMO_MODELS says."
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is not valid YAML ({' '.join(str(error).split())}); correct it."
        ) from None
    return data if isinstance(data, dict) else {}


def _holds_itself(value: Any, above: list[int], known: set[int]) -> bool:
    """Whether a mapping or list holds itself; ``known`` are those that do not."""
    if not isinstance(value, (dict, list)) or id(value) in known:
        return False
    if id(value) in above:
        return True
    parts = value.values() if isinstance(value, dict) else value
    if any(_holds_itself(part, [*above, id(value)], known) for part in parts):
        return True
    known.add(id(value))
    return False


def get_pair(id: str | None = None, path: str | Path | None = None) -> Pair:
    """The pair of that id; an unknown one is refused with the nearest known. Without an id the
    default one, or the only one there is.
    """
    pairs = load_pairs(path)
    if id is None and len(pairs) == 1:
        return next(iter(pairs.values()))
    id = DEFAULT if id is None else id
    if id in pairs:
        return pairs[id]
    if id == DEFAULT:
        raise UserError(f"Your models.yaml has no pair “{DEFAULT}”; name one: {', '.join(pairs)}.")
    near = difflib.get_close_matches(str(id).lower(), pairs, n=1, cutoff=0.4)
    hint = f"did you mean “{near[0]}”? " if near else ""
    raise UserError(f"There is no pair “{id:.80}”; {hint}known are: {', '.join(pairs)}.")


# -- the file's schema -----------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """Refuses a key that a mapping has twice, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"“{key.value}” is there twice", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Piece(_Strict):
    """A package and the file in it."""

    wheel: Annotated[str, Field(pattern=rf"^{PAIR_ID.pattern}==[A-Za-z0-9.!+]+$")]
    sha256: str
    file: str


class _Wheel(_Piece):
    """Where the file is in pieces, ``more`` are those behind the first and ``file_sha256`` is of
    all of them together.
    """

    file_sha256: str
    more: list[_Piece] | None = None


_HubId = Annotated[str, Field(pattern=rf"^{_HUB_ID.pattern}$")]
# a text of one line without spaces around it, as YAML's folded texts end in a newline
_Text = Annotated[
    str,
    AfterValidator(lambda text: check_text(" ".join(text.split()), "A text in models.yaml")),
    Field(min_length=1),
]


class _Hub(_Strict):
    hub: _HubId
    revision: str | None = None


class _Folder(_Strict):
    path: _Text


class _HubDrafter(_Strict):
    hub: _HubId
    revision: str | None = None


_SOURCES: dict[str, type[_Strict]] = {"wheel": _Wheel, "hub": _Hub, "path": _Folder}


def _source_kind(source: Any) -> str | None:
    return next((kind for kind in _SOURCES if isinstance(source, dict) and kind in source), None)


_Source = Annotated[
    Annotated[_Wheel, Tag("wheel")] | Annotated[_Hub, Tag("hub")] | Annotated[_Folder, Tag("path")],
    Discriminator(_source_kind),
]


class _Entry(_Strict):
    """One pair as it stands in the file; ``null`` is as good as leaving an option out."""

    title: _Text
    license: _Text
    size: _Text
    target: Annotated[
        list[_Source],
        Field(min_length=1),
        BeforeValidator(lambda value: [value] if value and isinstance(value, dict) else value),
    ]
    drafters: dict[str, _Text | _HubDrafter] | None = None
    hardware: _Text | None = None
    dtypes: Annotated[list[Dtype], Field(min_length=1)] | None = None
    thinking: StrictBool | None = None
    ngram: _Text | None = None
    blocked: _Text | None = None
    notes: _Text | None = None


def _pair(name: str, entry: Any, path: Path) -> Pair:
    where = f"{path}, pair “{name}”"
    if not isinstance(entry, dict):
        raise UserError(
            f"{where}: an entry must be a mapping with title, license, size and target."
        )
    if "engine" in entry:
        return _served_pair(name, entry, where)
    try:
        checked = _Entry.model_validate(entry)
    except ValidationError as error:
        raise UserError(f"{where}: {_sentence(error, entry)}.") from None
    drafters: dict[str, str] = {}
    for kind, place in (checked.drafters or {}).items():
        if kind not in ROLES:
            raise UserError(
                f"{where}: there is no drafter kind “{kind}”; kinds are {', '.join(ROLES)}."
            )
        drafters[kind] = str(_folder(place, path)) if isinstance(place, str) else _hub_place(place)
    return Pair(
        id=name,
        title=checked.title,
        license=checked.license,
        size=checked.size,
        target=tuple(_source(source, path) for source in checked.target),
        drafters=drafters,
        hardware=checked.hardware or "",
        dtypes=tuple(checked.dtypes or Pair.dtypes),
        thinking=checked.thinking,
        ngram=str(_folder(checked.ngram, path)) if checked.ngram else None,
        blocked=checked.blocked,
        notes=checked.notes or "",
    )


def _hub_place(drafter: _HubDrafter) -> str:
    return f"hub:{drafter.hub}" + (f"@{drafter.revision}" if drafter.revision else "")


def _served_pair(name: str, entry: dict[Any, Any], where: str) -> Pair:
    try:
        checked = read_entry(entry)
        served = checked.served()
        return Pair(
            id=name,
            title=checked.title,
            license=checked.license,
            size=checked.size or f"on {served.where}",
            target=(),
            hardware=checked.hardware or served.where,
            dtypes=(),
            notes=checked.notes or "",
            engine=served,
        )
    except ValueError as error:
        raise UserError(f"{where}: {error}; docs/engines.md has an example.") from None


def _source(source: _Strict, path: Path) -> dict[str, Any]:
    if isinstance(source, _Folder):
        return {"path": str(_folder(source.path, path))}
    return source.model_dump(exclude_none=True)


def _folder(place: str, path: Path) -> Path:
    if os.name != "nt" and PureWindowsPath(place).drive:
        raise UserError(
            f"{path}: the folder {place} is on a Windows drive, and this is another system; name"
            " a folder of this computer."
        )
    return given_path(place, f"A folder in {path}", path.resolve().parent).resolve()


def _sentence(error: ValidationError, entry: dict[Any, Any]) -> str:
    """What is wrong with an entry, without the full stop: an unknown name first, as a misspelt
    option is missing, too.
    """
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    key, *inner = first["loc"]
    if key == "target" and entry.get("target"):
        return _source_sentence(first, entry)
    if first["type"] in ("extra_forbidden", "invalid_key") and not inner:
        near = difflib.get_close_matches(str(key), _Entry.model_fields, n=1)
        hint = f"; did you mean “{near[0]}”" if near else ""
        return (
            f"there is no setting “{key}”{hint}; allowed are"
            f" {', '.join(sorted(_Entry.model_fields))}"
        )
    needed = ("title", "license", "size", "target")
    if key in needed and entry.get(key) in (None, "", [], {}):
        return is_missing([f"“{k}”" for k in needed if entry.get(k) in (None, "", [], {})])
    if unknown := [kind for kind in _mapping(entry.get("drafters")) if kind not in ROLES]:
        return f"there is no drafter kind “{unknown[0]}”; kinds are {', '.join(ROLES)}"
    if key == "drafters" and not inner:
        return (
            f"drafters is a mapping from kind ({', '.join(ROLES)}) to a folder or {{hub:"
            " owner/name}"
        )
    if key == "drafters":
        return (
            f"the drafter “{inner[0]}” must be a folder or {{hub: owner/name}}, not"
            f" {shown(entry['drafters'][inner[0]])}"
        )
    if key == "dtypes":
        what = shown(first["input"])
        return f"dtypes is a list of some of {', '.join(DTYPES)}, for instance [bf16], not {what}"
    what = "true or false" if key == "thinking" else "text"
    quotes = "; put it in quotes" if isinstance(first["input"], (int, float)) else ""
    return f"“{key}” must be {what}, not {shown(first['input'])}{quotes}"


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _source_sentence(first: Any, entry: dict[Any, Any]) -> str:
    _, *inner = first["loc"]
    if len(inner) > 2:
        kind = str(inner[1])
        known = _SOURCES[kind].model_fields
        if first["type"] == "extra_forbidden":
            return f"a {kind} source has no “{inner[2]}”; it has {', '.join(sorted(known))}"
        if first["type"] == "missing":
            return f"a {kind} source needs {', '.join(sorted(known))}"
    value = entry["target"]
    source = value[inner[0]] if isinstance(value, list) and inner else value
    return (
        "a target source is one of {wheel: …}, {hub: owner/name}, {path: folder}, not"
        f" {shown(source)}"
    )
