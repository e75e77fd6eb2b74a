"""Where the project's own files lie."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# A checkout has models.yaml and assets/ beside the package, an installed wheel inside it.
ROOT = PACKAGE.parent if (PACKAGE.parent / "models.yaml").is_file() else PACKAGE
