"""Code of a model's folder never runs: every call of transformers says so, and files that cannot be
read without it are refused in a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserError
from ..files import read_json

FILES = ("config.json", "tokenizer_config.json")


@contextmanager
def no_foreign_code(folder: str | Path, what: str = "model") -> Iterator[None]:
    """Inside, transformers reads the ``what`` in ``folder`` with ``trust_remote_code=False``, which
    asks nobody. An ``auto_map`` is ignored where transformers, or a network of ours, computes the
    model.

    Raises:
        UserError: the files need the code that their ``auto_map`` names.
    """
    try:
        yield
    except ValueError as error:
        names = [name for name in FILES if _has_auto_map(Path(folder) / name)]
        if "trust_remote_code" not in str(error) or not names:
            raise
        raise UserError(
            f"The {what} in {folder} needs code of its own (auto_map in"
            f" {' and '.join(names)}), and code from a model's folder is never run; choose another."
        ) from None


def _has_auto_map(file: Path) -> bool:
    try:
        return "auto_map" in read_json(file)
    except (OSError, ValueError, TypeError):
        return False
