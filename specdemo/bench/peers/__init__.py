"""Other ways to decode the same prompts with the same weights, beside this project's own lanes:
transformers' ``generate``, llama.cpp, ONNX Runtime GenAI. ``bench --peers`` runs them in turns with
the methods.

A peer that is not installed, or fails, is a row with one sentence.
"""

from .names import DEFAULT_PEERS, PEER_TITLES, parse_peers

__all__ = ["DEFAULT_PEERS", "PEER_TITLES", "parse_peers"]
