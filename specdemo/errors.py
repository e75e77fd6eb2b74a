"""The one exception a person is meant to read."""


class Refusal(Exception):
    """Something cannot be done. The message is one sentence that says what to do instead.

    Every entry point (page, command line, API) shows ``str(refusal)`` and nothing else; no traceback.
    """
