"""One group of controls for each method, built from its parameters; what a share link fills in; and
the limits of one request.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ..drafters.parts.params import (
    MethodParams,
    Parameter,
    parameter_fields,
    parse_value,
    upgrade_params,
)
from ..errors import UserError, shown
from ..request import LAST_SEED, SAMPLING_LIMITS


@dataclass(frozen=True)
class Limits:
    """What one visitor may ask for. A public Space allows less and only the pair that needs no
    download.

    Attributes:
        queue: pages that wait at one time; half of them may be at one network address.
        calls: races of the public endpoint that wait; calls_per_address: that run or wait, of one
            address.
        race_seconds: how long a race may take once it has begun.
        return_seconds: how long a race goes on without its page, which may be loading again.
        behind_proxy: whether the client's address is the one that the platform's proxy names.
        own_models: whether a browser on this machine may name a target and a drafter.
    """

    prompt_chars: int = 12_000
    new_tokens: int = 1024
    queue: int = 20
    every_pair: bool = True
    calls: int = 10
    calls_per_address: int = 2
    race_seconds: float = 900.0
    return_seconds: float = 8.0
    behind_proxy: bool = False
    own_models: bool = True

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> Limits:
        if not env.get("SPACE_ID"):
            return cls()
        return cls(
            prompt_chars=4_000,
            new_tokens=256,
            every_pair=False,
            race_seconds=180.0,
            behind_proxy=True,
            own_models=False,
        )

    @property
    def body_bytes(self) -> int:
        """Of one request: a prompt in which every character is escaped, and all else."""
        return 12 * self.prompt_chars + 16_384

    @property
    def per_address(self) -> int:
        return max(1, self.queue // 2)

    def check(self, prompt: str, new_tokens: float) -> None:
        if len(prompt) > self.prompt_chars:
            raise UserError(
                f"The prompt has {len(prompt):,} characters and this page accepts at most"
                f" {self.prompt_chars:,}; shorten it."
            )
        if not 1 <= new_tokens <= self.new_tokens or new_tokens != int(new_tokens):
            raise UserError(
                f"The number of new tokens must be a whole number from 1 to {self.new_tokens}, not"
                f" {shown(new_tokens)}."
            )


def control(parameter: Parameter) -> gr.components.Component:
    """A slider for a number, a dropdown for a choice, a checkbox for a boolean."""
    shared: dict[str, Any] = {
        "value": parameter.default,
        "label": parameter.name,
        "info": parameter.help,
        "interactive": True,
    }
    if parameter.kind == "bool":
        return gr.Checkbox(**shared)
    if parameter.kind == "choice":
        return gr.Dropdown(list(parameter.options), **shared)
    assert parameter.low is not None and parameter.high is not None  # every number has limits
    return gr.Slider(parameter.low, parameter.high, step=parameter.step, **shared)


class MethodControls:
    """One group of controls for every method; only the chosen method's is visible."""

    def __init__(self, methods: Mapping[str, Any], chosen: str):
        self.methods = methods
        self.groups: dict[str, gr.Group] = {}
        self.parts: list[tuple[str, str, gr.components.Component]] = []
        for name, method in methods.items():
            parameters = parameter_fields(method.params)
            with gr.Group(visible=name == chosen and bool(parameters)) as group:
                for parameter in parameters:
                    self.parts.append((name, parameter.name, control(parameter)))
            self.groups[name] = group

    @property
    def components(self) -> list[gr.components.Component]:
        return [part for _, _, part in self.parts]

    def values(self, method: str, all_values: list[Any]) -> dict[str, Any]:
        """The chosen method's parameters out of all controls' values."""
        return {
            field: value
            for (name, field, _), value in zip(self.parts, all_values, strict=True)
            if name == method
        }

    def show(self, method: str) -> list[Any]:
        """Updates of the groups, in order."""
        return [
            gr.update(visible=name == method and bool(parameter_fields(self.methods[name].params)))
            for name in self.groups
        ]

    def fill(self, method: str, params: Mapping[str, Any]) -> list[Any]:
        """Updates of all controls: ``params`` for ``method`` where they are within limits, nothing
        elsewhere.
        """
        declared = self.methods[method].params
        return [
            (
                gr.update(value=parse_value(declared, field, params[field]))
                if name == method and field in params and fits(declared, field, params[field])
                else gr.skip()
            )
            for name, field, _ in self.parts
        ]


def fits(params: type[MethodParams], name: str, value: Any) -> bool:
    """Whether a value from a link may go into that control."""
    try:
        parse_value(params, name, value)
    except UserError:
        return False
    return True


def method_choices(methods: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The methods as a dropdown shows them: the name that lanes and recordings use first, so that a
    narrow one shows it.
    """
    return [
        (m.title if _letters(m.title) == name else f"{name}: {m.title}", name)
        for name, m in methods.items()
    ]


def _letters(title: str) -> str:
    return "".join(letter for letter in title.lower() if letter.isalnum())


def rule_help(methods: Mapping[str, Any]) -> str:
    """Which methods offer the rules that are not match."""
    offered = [
        (rule, ", ".join(m.title for m in methods.values() if rule in m.rules))
        for rule in ("ratio", "point-mass")
    ]
    return "; ".join(f"{rule} with {titles}" for rule, titles in offered if titles)


def rule_choices(method: Any) -> list[tuple[str, str]]:
    words = {
        "match": "match: the same tokens",
        "ratio": "ratio: the same distribution",
        "point-mass": "point-mass: the same distribution",
    }
    return [(words.get(rule, rule), rule) for rule in method.rules]


def from_link(
    query: Mapping[str, str],
    methods: Mapping[str, Any],
    pairs: list[str],
    limits: Limits,
    default: str = "block",
) -> tuple[dict[str, Any], list[str]]:
    """What a share link fills in, and the names of what was unknown or out of place and is left
    out. ``default`` is the method of a link that names none.
    """
    out: dict[str, Any] = {}
    wrong: list[str] = []
    if query.get("prompt", "").strip() and len(query["prompt"]) <= limits.prompt_chars:
        out["prompt"] = query["prompt"]
    params = _link_params(query, "params")
    wrong += ["params"] if params is None else []
    if query.get("method") in methods:
        out["method"] = query["method"]
        if query.get("rule") in methods[out["method"]].rules:
            out["rule"] = query["rule"]
    method = query.get("method") or default
    if method in methods and ("method" in out or params):
        out["params"] = upgrade_params(method, params or {})
        wrong += [
            str(name)
            for name, value in out["params"].items()
            if not fits(methods[method].params, name, value)
        ]
    if query.get("pair") in pairs:
        out["pair"] = query["pair"]
    wrong += _left_from_link(query, methods, out)
    for key, low, high, kind in (
        ("seed", 0, LAST_SEED, int),
        ("new", 1, limits.new_tokens, int),
        ("temperature", *SAMPLING_LIMITS["temperature"][:2], float),
        ("top_p", 0.05, 1.0, float),
    ):
        try:
            value = kind(query[key])
        except KeyError:
            continue
        except (ValueError, OverflowError):
            value = None
        if value is not None and low <= value <= high:
            out[key] = value
    wrong += [
        key
        for key in ("prompt", "method", "rule", "pair", "seed", "new", "temperature", "top_p")
        if query.get(key) and key not in out
    ]
    return out, wrong


def _left_from_link(
    query: Mapping[str, str], methods: Mapping[str, Any], out: dict[str, Any]
) -> list[str]:
    """Put what a link says of the left lane into ``out``; returns what cannot be honoured."""
    name = query.get("against")
    if not name:
        return []
    if name not in methods:
        return ["against"]
    out["against"] = name
    params = _link_params(query, "against_params")
    if params is None:
        return ["against_params"]
    declared = methods[name].params
    known = {key: value for key, value in params.items() if fits(declared, key, value)}
    out["against_params"] = ", ".join(f"{key}={value}" for key, value in known.items())
    return [key for key in params if key not in known]


def _link_params(query: Mapping[str, str], key: str) -> dict[str, Any] | None:
    """The parameters of a link; None where they are not a JSON object."""
    try:
        params = json.loads(query.get(key) or "{}")
    except (ValueError, RecursionError):
        return None
    return params if isinstance(params, dict) else None
