"""Which methods a bench measures: ``block,tree:budget=15,specdiff2:rule=point-mass:K=8``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from ..drafters import METHODS
from ..drafters.parts.params import parse_assignments
from ..errors import UserError
from ..models.served import METHOD
from ..totals import Rule

BASELINE = "ar"  # the method that every other is compared with


@dataclass(frozen=True)
class MethodConfig:
    """One row of the table: a method with its parameters and acceptance rule.

    Attributes:
        label: how the command line names it, for instance ``tree:budget=15``.
    """

    label: str
    method: str
    rule: Rule
    params: dict[str, str] = field(default_factory=dict)


def method_title(label: str) -> str:
    """The method's title for people, with its settings: ``Best-first tree (budget=15)``."""
    if label == METHOD:
        return "The engine's own speculation"
    name, _, settings = label.partition(":")
    title = METHODS[name].title if name in METHODS else name
    return f"{title} ({settings.replace(':', ', ')})" if settings else title


def parse_methods(text: str | Sequence[str]) -> tuple[MethodConfig, ...]:
    """The methods that the command line or the page names. The baseline always runs and is left
    out.

    Raises:
        UserError: nothing to measure, or a method, rule or parameter that cannot be.
    """
    words = text.split(",") if isinstance(text, str) else list(text)
    labels = dict.fromkeys(
        word.strip() for word in words if word.strip() and word.strip() != BASELINE
    )
    if not labels:
        raise UserError(
            "Name at least one method to measure against plain decoding; choose from:"
            f" {', '.join(m for m in METHODS if m != BASELINE)}."
        )
    return tuple(_parse_method(label) for label in labels)


def _parse_method(label: str) -> MethodConfig:
    name, *settings = label.split(":")
    if name not in METHODS:
        raise UserError(f"There is no method “{name}”; choose from: {', '.join(METHODS)}.")
    method, params = METHODS[name], parse_assignments(settings)
    # whatever the person wrote: refuse() turns down what is no rule
    rule = cast(Rule, params.pop("rule", method.rules[0]))
    if why := method.refuse(rule, method.parse_params(params)):
        raise UserError(why)
    return MethodConfig(label, name, rule, params)
