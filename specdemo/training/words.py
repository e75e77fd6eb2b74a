"""What goes wrong on the machine's side of a training run, in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ..errors import Refusal


@contextmanager
def in_words(out: Path, less: str) -> Iterator[None]:
    """Inside, a full disk, a folder that cannot be written and memory that runs out become a
    Refusal.

    Args:
        out: the folder the command writes to. less: the options to lower where memory is short.
    """
    try:
        yield
    except OSError as error:
        raise Refusal(
            f"{error.filename or out} could not be used ({error.strerror or error}); mend that or"
            " choose another --out. What was saved before is kept."
        ) from None
    except RuntimeError as error:  # torch has a class of its own for a GPU only
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise Refusal(
            f"The memory did not suffice; lower {less}. What was saved before is kept."
        ) from None
