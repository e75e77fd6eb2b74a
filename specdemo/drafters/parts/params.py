"""The parameters of a method: declared as a pydantic model, described for the page, the command
line and the documentation, checked when they come from outside, and upgraded from old spellings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args

from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...errors import UserError, shown

ParameterKind = Literal["int", "float", "bool", "choice"]

# The deepest draft whose rows are exact (``engine.attention.NEAR``), and the most nodes of one that
# is tried on any engine: the rows of its widest pass.
DEEPEST, MOST_NODES = 32, 271


class MethodParams(BaseModel):
    """Base of every method's ``Params``. A number declares its inclusive limits with ``ge`` and
    ``le``, a choice is a ``Literal``; each field's ``description`` is its one line of help.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def check(self) -> None:
        """Limits that need two values at once. Raises UserError."""

    def needs(self) -> dict[str, int]:
        """Settings that ask for so many nodes in a draft, by name: an engine whose passes verify
        fewer refuses them.
        """
        return {}

    def most_nodes(self) -> int:
        """The most nodes that a draft may have; a tree that could have more than an engine's passes
        verify is cut, and the race tells it. 0: as many as pay.
        """
        return max(self.needs().values(), default=0)


def depth(default: int, description: str) -> Any:
    """A setting that is the number of tokens on one path of a draft."""
    return Field(
        default,
        ge=1,
        le=DEEPEST,
        description=description,
        json_schema_extra={"limit": "the deepest draft whose rows are exact"},
    )


MarkovHead = Annotated[
    bool,
    Field(description="Condition each position on the token chosen before it (Markov head)"),
]

Coupled = Annotated[
    bool,
    Field(
        description="At a temperature above 0 under match: draft with the noise that the target"
        " samples with, so that more is accepted"
    ),
]

P = TypeVar("P", bound=MethodParams)


@dataclass(frozen=True)
class Parameter:
    """One parameter as the page, the command line and the documentation show it.

    Attributes:
        low, high, step: inclusive limits and step of a number, else None.
        options: the words of a choice, else empty.
        limit: what its highest value is, in words; empty: nothing but a limit.
    """

    name: str
    kind: ParameterKind
    default: Any
    help: str
    low: float | None = None
    high: float | None = None
    step: float | None = None
    options: tuple[str, ...] = ()
    limit: str = ""

    @property
    def allowed(self) -> str:
        """Which values it takes, as the end of “… must be”."""
        if self.kind == "bool":
            return "true or false"
        if self.kind == "choice":
            return f"one of {', '.join(self.options)}"
        whole = "whole " if self.kind == "int" else ""
        return f"a {whole}number from {self.low:g} to {self.high:g}"


def parameter_fields(params: type[MethodParams]) -> list[Parameter]:
    """The parameters of a method in the order of their declaration."""
    return [_parameter(name, params) for name in params.model_fields]


def _parameter(name: str, params: type[MethodParams]) -> Parameter:
    info = params.model_fields[name]
    shared: dict[str, Any] = {
        "name": name,
        "default": info.default,
        "help": info.description or "",
    }
    if info.annotation is bool:
        return Parameter(kind="bool", **shared)
    if options := get_args(info.annotation):
        return Parameter(kind="choice", options=options, **shared)
    whole = info.annotation is int
    limits: dict[type, Any] = {type(limit): limit for limit in info.metadata}
    extra: Any = info.json_schema_extra or {}
    return Parameter(
        kind="int" if whole else "float",
        low=limits[Ge].ge,
        high=limits[Le].le,
        step=extra.get("step", 1 if whole else 0.05),
        limit=extra.get("limit", ""),
        **shared,
    )


def parse_params(params: type[P], values: Mapping[str, Any]) -> P:
    """Checked parameters from outside values, text included.

    Raises:
        UserError: an unknown name, a value out of its limits, or two values that do not fit.
    """
    parsed = _validate(params, values)
    parsed.check()
    return parsed


def parse_value(params: type[MethodParams], name: str, value: Any) -> Any:
    """One checked value by itself. Raises UserError."""
    return getattr(_validate(params, {name: value}), name)


def _validate(params: type[P], values: Mapping[str, Any]) -> P:
    try:
        return params.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name, value = str(first["loc"][0]), first["input"]
        if name not in params.model_fields:
            known = ", ".join(params.model_fields) or "none"
            raise UserError(
                f"There is no parameter “{name:.80}” here; choose from: {known}."
            ) from None
        of = _parameter(name, params)
        limit = f" ({of.high:g} is {of.limit})" if of.limit else ""
        raise UserError(f"{name} must be {of.allowed}{limit}, not {shown(value)}.") from None


def parse_assignments(words: Iterable[str]) -> dict[str, str]:
    """``["gamma=7"] -> {"gamma": "7"}``, as the command line names parameters.

    Raises:
        UserError: a word is not NAME=VALUE, or a name is there twice.
    """
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = (part.strip() for part in word.partition("="))
        if not (name and equals and value):
            raise UserError(
                f"“{word}” is not a setting; write it as NAME=VALUE, for instance gamma=7."
            )
        name = name.replace("-", "_")
        if name in values:
            raise UserError(f"“{name}” is set twice; give it one value.")
        values[name] = value
    return values


# method -> old name -> new name; the old values "yes" and "no" are true and false today
RENAMED: dict[str, dict[str, str]] = {
    "block": {"follow": "markov_head"},
    "tree": {"follow": "markov_head"},
    "d2sd": {"follow": "markov_head"},
    "best": {"follow": "markov_head", "sleep": "adaptive"},
    "specdiff2": {"argmax": "argmax"},
}


def upgrade_params(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """``params`` under their names and with their types of today, in the same order. Names that
    are unknown, or stand beside their new spelling, pass through, to be refused.
    """
    renamed = RENAMED.get(method, {})
    out: dict[str, Any] = {}
    for name, value in params.items():
        new = renamed.get(name)
        if new is None or (new != name and new in params):
            out[name] = value
        else:
            out[new] = value == "yes" if value in ("yes", "no") else value
    return out
