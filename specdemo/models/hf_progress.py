"""transformers' own progress bars and tables, which would stand between the lines of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Inside, transformers shows no progress bars; ours say the same in one place. Nor its table of
    weights that are missing, too many or of other shapes, of which we make a sentence.
    """
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
