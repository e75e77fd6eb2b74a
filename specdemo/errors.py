"""The one exception a person is meant to read."""

import sys
from collections.abc import Callable


class Refusal(Exception):
    """Something cannot be done. The message is one sentence that says what to do instead.

    Every entry point (page, command line, API) shows ``str(refusal)`` and nothing else; no
    traceback.
    """


def answered(work: Callable[[], int | None], stopped: str = "stopped.") -> int:
    """Run a command's work; 0 = done (or what it returns), 1 = refused (one sentence on stderr),
    130 = interrupted, said as ``stopped``.
    """
    try:
        return work() or 0
    except Refusal as refusal:
        print(f"specdemo: {refusal}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"specdemo: {stopped}", file=sys.stderr)
        return 130
