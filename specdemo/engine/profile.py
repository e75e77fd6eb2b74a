"""What measuring and checking a target found, kept in the cache folder, so that the next load with
the same weights, code, libraries and machine need not do it again.

A profile that says something else, or nothing that can be read, is as good as none: it is measured
again and replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
import transformers
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..files import atomic_write
from ..hardware import cpu_facts
from ..paths import PACKAGE
from .cost import VERIFY_WIDTH, WIDER, WIDTHS, CostModel, Measured

if TYPE_CHECKING:
    from .step import AnyTarget

SOURCES = (
    "engine/*.py",
    "engine/general/*.py",
    *(
        f"models/{name}.py"
        for name in (
            "decoder",
            "linear",
            "jobs",
            "blocks",
            "team",
            "compiled",
            "one_call",
            "reads",
            "kernels",
            "lanes",
            "vectors",
            "dots",
            "whole_pass",
        )
    ),
)
SAMPLES = 64  # values of each weight that tell it from another

Ms = Annotated[float, Field(gt=0, lt=1e6, allow_inf_nan=False)]
Slope = Annotated[float, Field(ge=0, lt=1e3, allow_inf_nan=False)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)


class Curve(Strict):
    """A :class:`.cost.CostModel` without its widths."""

    ms: dict[int, Ms]
    one_row_ms: Ms
    slope: dict[int, Slope]
    one_row_slope: Slope


class Profile(Strict):
    """What a load found.

    Attributes:
        made_for: what it holds for, by name, as :func:`identity` says it.
        gap: what :func:`.check_target.check_against` returned.
        widths: trusted row counts. curves: costs by number of threads.
        sure: the costs need not be measured again. measured: when, for people.
    """

    version: Literal[1]
    made_for: dict[str, str]
    gap: float
    widths: list[int]
    curves: dict[int, Curve]
    sure: bool
    measured: str

    @model_validator(mode="after")
    def _consistent(self) -> Profile:
        widths = set(self.widths)
        if not VERIFY_WIDTH in widths <= {*WIDTHS, *WIDER} or self.widths != sorted(widths):
            raise ValueError("no trusted widths")
        if not self.curves or any(threads < 1 for threads in self.curves):
            raise ValueError("no curves")
        if any(set(curve.ms) != widths for curve in self.curves.values()):
            raise ValueError("curves of other widths")
        return self

    @property
    def costs(self) -> Measured:
        """As :func:`.calibrate.calibrate` returned them."""
        curves = {
            threads: CostModel(widths=list(self.widths), **dict(self.curves[threads]))
            for threads in sorted(self.curves, reverse=True)
        }
        return Measured(curves, self.sure)


class ProfileFile:
    """The profile of a target on this machine: a file in ``folder``; ``shipped`` is another folder
    that is only read.
    """

    def __init__(self, target: AnyTarget, model: Any, folder: Path, shipped: Path | None = None):
        self.made_for = identity(target, model)
        text = "\n".join(f"{name}={value}" for name, value in sorted(self.made_for.items()))
        name = f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
        self.path, self.places = folder / name, [folder / name]
        if shipped is not None:
            self.places.append(shipped / name)

    def read(self) -> Profile | None:
        """The profile, if there is one that holds here."""
        for place in self.places:
            try:
                found = Profile.model_validate_json(place.read_bytes())
            except (OSError, ValidationError, ValueError):
                continue
            if found.made_for == self.made_for and self._fits(found):
                return found
        return None

    def _fits(self, found: Profile) -> bool:
        """Whether its largest number of threads is the one in force."""
        return not (threads := self.made_for["threads"]) or max(found.curves) == int(threads)

    def write(self, gap: float, found: Measured) -> None:
        """Keep what was found; where that is not possible, the next load measures again."""
        curves = {
            threads: Curve(
                ms=one.ms,
                one_row_ms=one.one_row_ms,
                slope={width: one.slope.get(width, 0.0) for width in one.ms},
                one_row_slope=one.one_row_slope,
            )
            for threads, one in found.curves.items()
        }
        profile = Profile(
            version=1,
            made_for=self.made_for,
            gap=gap,
            widths=next(iter(found.curves.values())).widths,
            sure=found.sure,
            curves=curves,
            measured=time.strftime("%Y-%m-%d %H:%M:%S"),
        )
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(self.path, profile.model_dump_json(indent=1))


def identity(target: AnyTarget, model: Any) -> dict[str, str]:
    """Everything that what is measured and checked depends on."""
    cuda = target.device.type == "cuda"
    return {
        "weights": _digest_of_weights(model),
        "code": _digest_of_code(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(target.device) if cuda else _short(cpu_facts()),
        "dtype": target.dtype_name,
        "pass": f"{type(target).__name__} {target.pass_kind}",
        "transformers": transformers.__version__,
        "threads": "" if cuda else str(torch.get_num_threads()),
        "onednn": os.environ.get("ONEDNN_MAX_CPU_ISA", ""),
    }


def _short(text: str) -> str:
    """The beginning of a long text for people, and a digest of all of it."""
    return f"{text[:40].strip()} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _digest_of_code() -> str:
    digest = hashlib.sha256()
    for pattern in SOURCES:
        for path in sorted(PACKAGE.glob(pattern)):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@torch.no_grad()
def _digest_of_weights(model: Any) -> str:
    """Of names, shapes, dtypes and some values of every weight."""
    digest = hashlib.sha256(str(model.config.to_dict()).encode())
    samples = []
    for name, weight in model.named_parameters():
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        flat = weight.detach().reshape(-1)
        samples.append(flat[:: max(1, len(flat) // SAMPLES)][:SAMPLES].float())
    digest.update(torch.cat(samples).cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
