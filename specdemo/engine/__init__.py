"""The engine room: verify a tree of candidates in one pass, keep what the target would have
written, and time it fairly.
"""

from .load import Engine, load_engine
from .race import race
from .request import Request
from .sampling import Sampling

__all__ = ["Engine", "Request", "Sampling", "load_engine", "race"]
