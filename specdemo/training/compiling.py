"""Whether a pass is compiled for training, and what happens where that fails."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException

from ..errors import first_line
from .settings import Settings

# compiling takes half a minute, once a block length, and halves the drafter's share of a step
LEAST_MINUTES = 5.0
LEAST_STEPS = 500


def has_compiler() -> bool:
    """Whether a C++ compiler is found, as ``torch.compile`` looks for one."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++"))


def worth_compiling(settings: Settings) -> bool:
    """Whether a run is long enough for it, and there is a compiler."""
    if settings.kind == "diffusion-lm":  # its texts are of many lengths
        return False
    long = settings.steps >= LEAST_STEPS if settings.steps else settings.minutes >= LEAST_MINUTES
    return long and has_compiler()


def compiled(function: Callable[..., Any], any_size: bool = False) -> Callable[..., Any]:
    """``function`` compiled at its first call, for each shape of its arguments or once for
    ``any_size``; where the compiler fails, ``function`` itself from then on, and a line that says
    so.
    """
    fast: Callable[..., Any] | None = torch.compile(function, dynamic=any_size)

    def call(*args: Any) -> Any:
        nonlocal fast
        if fast is not None:
            try:
                return fast(*args)
            except TorchDynamoException as error:
                fast = None
                print(
                    f"The drafter's pass could not be compiled ({first_line(error)}); training"
                    " goes on without.",
                    file=sys.stderr,
                )
        return function(*args)

    return call
