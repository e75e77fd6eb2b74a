"""From the values of the page's controls, or of the public endpoint, to a checked request."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

from ..drafters.parts.params import parse_assignments
from ..errors import UserError, shown
from ..request import Request, Sampling
from .choice import check_dtype, engine_key
from .controls import Limits


@dataclass(frozen=True)
class RaceForm:
    """What the controls hold, or what a client of the endpoint sends: nothing in it is checked.
    ``against_params`` may be a text: ``gamma=4, budget=20``.
    """

    prompt: Any
    method: Any
    pair: Any
    rule: Any
    new_tokens: Any
    temperature: Any
    top_p: Any
    seed: Any
    params: Any
    dtype: Any = ""
    against: Any = ""
    against_params: Any = ""

    def digest(self) -> str:
        """The same for the same values, and short whatever they are."""
        text = json.dumps(astuple(self), default=repr, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def filled(self, defaults: RaceForm) -> RaceForm:
        """With the default of every value that was left out."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(defaults, **{name: v for name, v in given.items() if v is not None})


FORM_VALUES = len(fields(RaceForm))  # as many as the endpoint takes


def with_all_values(values: Sequence[Any]) -> list[Any]:
    """The values of a call of the endpoint, None for those that were left out at the end."""
    return [*values, *[None] * (FORM_VALUES - len(values))]


@dataclass(frozen=True)
class RaceJob:
    """A request that can run, on which pair, and how the page shows it.

    Attributes:
        dtype: empty: the usual one.
        stepping: whether the page waits before the first round.
        local_browser: whether the browser runs on this machine, see ``Server.messages``.
    """

    pair: str
    request: Request
    stepping: bool = False
    local_browser: bool = False
    dtype: str = ""

    @property
    def key(self) -> str:
        """Of the engine that runs it."""
        return engine_key(self.pair, self.dtype)

    def to_dict(self) -> dict[str, Any]:
        """What the page shows of it before the race begins, and keeps in its address."""
        chosen = {"chosen_dtype": self.dtype} if self.dtype else {}
        return {"pair": self.pair} | chosen | self.request.to_dict()


@dataclass(frozen=True)
class BenchJob:
    """A short bench: names of methods, names of example prompts, and new tokens for each."""

    methods: list[str]
    prompts: list[str]
    new_tokens: int


def make_job(
    form: RaceForm,
    methods: Mapping[str, Any],
    pairs: Mapping[str, Any],
    limits: Limits,
    stepping: bool = False,
    local_browser: bool = False,
) -> RaceJob:
    """The checked request of a form, within the page's limits.

    Raises:
        UserError: it cannot run here.
    """
    prompt = form.prompt or ""
    if not isinstance(prompt, str):
        raise UserError(f"The prompt must be text, not {shown(prompt)}.")
    new_tokens, temperature, top_p, seed = (
        _number(value) for value in (form.new_tokens, form.temperature, form.top_p, form.seed)
    )
    limits.check(prompt, new_tokens)
    pair = form.pair
    if not isinstance(pair, str) or pair not in pairs:
        raise UserError(f"There is no pair {shown(pair)} here; choose one of {', '.join(pairs)}.")
    request = Request(
        prompt,
        form.method,
        form.params,
        Sampling(temperature=temperature, top_p=top_p, seed=seed),
        int(new_tokens),
        form.rule,
        against=form.against or "",
        against_params=_left_params(form),
    )
    for name in filter(None, (request.method, request.against)):
        if why := methods[name].refuse_pair(pairs[pair]):
            raise UserError(why)
    dtype = check_dtype(form.dtype, pairs[pair], limits)
    return RaceJob(pair, request, stepping, local_browser, dtype)


def _left_params(form: RaceForm) -> Any:
    """The left lane's parameters: by name, or as the page's line of text, of no meaning where that
    lane decodes plainly.
    """
    given = form.against_params
    if not isinstance(given, str):
        return given or {}
    return parse_assignments(given.replace(",", " ").split()) if form.against != "ar" else {}


def _number(value: Any) -> Any:
    """``value`` as a number, an int where it is whole: a slider gives 16.0, a client may send
    "16".
    """
    try:
        amount = float(value)
    except (TypeError, ValueError, OverflowError):
        amount = math.nan
    if not math.isfinite(amount):
        raise UserError(
            "New tokens, temperature, top-p and seed must be numbers; enter a number for each."
        )
    return int(amount) if amount.is_integer() else amount
