"""The engine: verify a tree of candidates in one pass, keep what the target would have
written, and time it fairly.
"""

from .engine import Engine
from .load import load_engine
from .race import race

__all__ = ["Engine", "load_engine", "race"]
