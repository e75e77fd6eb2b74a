"""What a race is asked to do, checked once. The page, the public endpoint, the command line and the
bench build a :class:`Request`; everything behind them trusts it. Loads no torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, cast, get_args

from pydantic import ConfigDict, ValidationInfo, field_validator, model_validator
from pydantic.dataclasses import dataclass
from typing_extensions import Self

from .drafters import METHODS
from .errors import UserError, shown
from .prompts import check_text, clean_prompt
from .totals import Rule

Lanes = Literal["both", "spec", "ar"]
Check = Literal["", "exact"]
RULES: tuple[Rule, ...] = get_args(Rule)
LANES: tuple[Lanes, ...] = get_args(Lanes)

MAX_NEW_TOKENS = 4096
LAST_SEED = 2**31 - 1
EXACT = 2**53  # up to here a double, which is what a browser has, holds every whole number
# temperatures below this are greedy: logits divided by less leave the range of float32 (vLLM draws
# the line at the same place)
GREEDY_BELOW = 1e-5
SAMPLING_LIMITS: dict[str, tuple[float, float, bool]] = {  # name: (lowest, highest, whole number)
    "temperature": (0.0, 5.0, False),
    "top_k": (0, 1_000_000, True),
    "top_p": (0.0, 1.0, False),
    "min_p": (0.0, 1.0, False),
    "repetition_penalty": (0.1, 5.0, False),
    "seed": (0, LAST_SEED, True),
}


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Sampling:
    """How the target chooses a token. A temperature below ``GREEDY_BELOW`` is greedy; top_k 0,
    top_p 1, min_p 0 and repetition_penalty 1 are off.

    Raises:
        UserError: a value is not a finite number within ``SAMPLING_LIMITS``.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    @field_validator("*", mode="before")
    @classmethod
    def _within_limits(cls, value: Any, info: ValidationInfo) -> float:
        name = str(info.field_name)
        low, high, whole = SAMPLING_LIMITS[name]
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not low <= value <= high  # NaN is never between them
            or (whole and value != int(value))
        ):
            kind = "a whole number" if whole else "a number"
            what = "The seed" if name == "seed" else name
            raise UserError(f"{what} must be {kind} from {low:,} to {high:,}, not {_said(value)}.")
        if name == "top_p" and value == 0:
            raise UserError("top_p must be above 0; use temperature 0 for greedy decoding.")
        return int(value) if whole else float(value)

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True, config=ConfigDict(extra="forbid", validate_default=True))
class Request:
    """One race.

    Args:
        prompt: the user's message; the engine puts it into the target's chat form. A byte order
            mark before it and one newline at its end go, as a file or a pipe brings them along.
        method: a key of ``METHODS``.
        params: the method's own parameters, by name (others keep their defaults) or as an instance
            of the method's parameter class, which is what the attribute always holds.
        rule: ``match`` keeps the target's very tokens, ``ratio`` and ``point-mass`` keep its
            distribution.
        stop: strings that end the answer (cut from its text).
        record: whether the draft's frames and per-node probabilities are wanted; never changes what
            is written.
        lanes: ``both``, or one alone (a bench that has the other already).
        check: ``exact`` decodes once more, one token a pass at the fixed verify width and at one
            row, and compares (see ``engine/exactness.py``).
        against: the method of the left lane; empty: plain decoding. Plain decoding runs beside two
            methods too, as a third lane that both are compared with and measured against.
        against_params: that method's parameters; the rule holds for both.

    Raises:
        UserError: something in it cannot run; one sentence that says what to do.
    """

    prompt: str
    method: str = "block"
    params: Any = dataclasses.field(default_factory=dict)
    sampling: Sampling = dataclasses.field(default_factory=Sampling)
    max_new_tokens: int = 128
    rule: Rule = "match"
    stop: tuple[str, ...] = ()
    record: bool = True
    lanes: Lanes = "both"
    check: Check = ""
    against: str = ""
    against_params: Any = dataclasses.field(default_factory=dict)

    @field_validator("prompt", mode="before")
    @classmethod
    def _some_text(cls, value: Any) -> str:
        prompt = clean_prompt(value) if isinstance(value, str) else ""
        if not prompt.strip():
            raise UserError("The prompt is empty; type a question or choose an example.")
        return prompt

    @field_validator("method", "rule", "lanes", "against", mode="before")
    @classmethod
    def _known(cls, value: Any, info: ValidationInfo) -> str:
        named = value if isinstance(value, str) else shown(value)
        if info.field_name == "against" and value in ("", "ar"):
            return ""  # plain decoding, which always runs
        if info.field_name in ("method", "against") and value not in tuple(METHODS):
            raise UserError(
                f"There is no method “{named:.80}”; choose one of {', '.join(METHODS)}."
            )
        if info.field_name == "rule" and value not in RULES:
            raise UserError(
                f"There is no acceptance rule “{named:.80}”; choose one of {', '.join(RULES)}."
            )
        if info.field_name == "lanes" and value not in LANES:
            raise UserError(f"lanes must be one of {', '.join(LANES)}, not {shown(value)}.")
        return value

    @field_validator("params", "against_params", mode="before")
    @classmethod
    def _of_the_method(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.data["method" if info.field_name == "params" else "against"]
        if name and isinstance(value, METHODS[name].params):
            return value
        if not isinstance(value, Mapping):
            raise UserError('Parameters are given by name, for instance {"gamma": 7}.')
        if name:
            return METHODS[name].parse_params(value)
        if value:
            raise UserError("The left lane decodes plainly and has no parameters; name its method.")
        return {}

    @field_validator("record", mode="before")
    @classmethod
    def _yes_or_no(cls, value: Any) -> bool:
        if not isinstance(value, bool):
            raise UserError(f"record must be true or false, not {shown(value)}.")
        return value

    @field_validator("max_new_tokens", mode="before")
    @classmethod
    def _some_tokens(cls, value: Any) -> int:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not 1 <= value <= MAX_NEW_TOKENS
        ):
            raise UserError(
                f"The number of new tokens must be a whole number from 1 to {MAX_NEW_TOKENS}, not"
                f" {shown(value)}."
            )
        return value

    @field_validator("stop", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)) or not all(isinstance(s, str) and s for s in value):
            raise UserError("Stop strings must be a list of texts that are not empty.")
        return tuple(check_text(stop, "A stop string") for stop in value)

    @field_validator("check", mode="before")
    @classmethod
    def _known_check(cls, value: Any, info: ValidationInfo) -> str:
        possible = info.data["rule"] == "match" and info.data["lanes"] != "ar"
        if value not in get_args(Check) or (value and not possible):
            raise UserError(
                "The check must be “exact”, and it needs the rule “match” and a speculative lane."
            )
        return value

    @model_validator(mode="after")
    def _lossless(self) -> Self:
        if why := METHODS[self.method].refuse(self.rule, self.params):
            raise UserError(why)
        if not self.against:
            return self
        if self.lanes != "both":
            raise UserError("A race against a method needs all lanes; leave out which ones run.")
        if why := METHODS[self.against].refuse(self.rule, self.against_params):
            raise UserError(f"The left lane: {why}")
        return self

    @property
    def left(self) -> Request:
        """What the left lane is asked, where that is a method."""
        return dataclasses.replace(
            self, method=self.against, params=self.against_params, against="", against_params={}
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, from which :meth:`from_dict` makes the same request in another process."""
        left = self.against_params.model_dump() if self.against else {}
        return dataclasses.asdict(self) | {
            "params": self.params.model_dump(),
            "against_params": left,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Request:
        """Raises UserError, as building one does."""
        return _build(cls, dict(data) | {"sampling": _build(Sampling, data.get("sampling", {}))})


def _said(value: Any) -> str:
    """``value`` as it was given, for a sentence. A whole number beyond ``EXACT`` is not quoted: a
    browser has rounded it before it comes here.
    """
    if isinstance(value, int) and abs(value) > EXACT:
        return "one of so many digits"
    return shown(value)


T = TypeVar("T")


def _build(made: type[T], values: Mapping[str, Any]) -> T:
    """``made(**values)``. Raises UserError, also where a name is unknown or missing."""
    known = [field.name for field in dataclasses.fields(cast(Any, made))]
    if not isinstance(values, Mapping) or any(name not in known for name in values):
        raise UserError(f"A {made.__name__.lower()} is given by name: {', '.join(known)}.")
    return made(**{"prompt": "", **values} if "prompt" in known else values)
