"""Where the project's own files lie."""

import errno
import os
from pathlib import Path

from .errors import UserError

PACKAGE = Path(__file__).resolve().parent
# A checkout has models.yaml and assets/ beside the package, an installed wheel inside it.
ROOT = PACKAGE.parent if (PACKAGE.parent / "models.yaml").is_file() else PACKAGE


def cache_root() -> Path:
    """Where fetched weights and compiled code live: ``SPECDEMO_CACHE`` or ~/.cache/specdemo."""
    return given_path(
        os.environ.get("SPECDEMO_CACHE") or "~/.cache/specdemo", "The cache folder SPECDEMO_CACHE"
    )


def given_path(place: str | Path, what: str, beside: Path | None = None) -> Path:
    """A path that a person wrote, with ``~`` for a home folder; it need not be there.

    Args:
        what: names it in the sentence, as "The drafter".
        beside: the folder that a relative one starts from; the current one if None.

    Raises:
        UserError: no file can have that name here.
    """
    try:
        path = (beside or Path()) / Path(place).expanduser()
        os.lstat(path)
        return path
    except FileNotFoundError:
        return path
    except (RuntimeError, ValueError):  # no such user, a character that no name may have
        why = "no such user" if str(place).startswith("~") else "a character that no name may have"
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.ELOOP):
            return path  # said where it is used
        why = error.strerror or str(error)
    raise UserError(f"{what} cannot be {str(place)!r:.80} ({why}); correct that name.")
