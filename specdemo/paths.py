"""Where the project's own files lie."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# A checkout has models.yaml and assets/ beside the package, an installed wheel inside it.
ROOT = PACKAGE.parent if (PACKAGE.parent / "models.yaml").is_file() else PACKAGE


def cache_root() -> Path:
    """Where fetched weights and compiled code live: ``SPECDEMO_CACHE`` or ~/.cache/specdemo."""
    return Path(
        os.environ.get("SPECDEMO_CACHE") or Path.home() / ".cache" / "specdemo"
    ).expanduser()
