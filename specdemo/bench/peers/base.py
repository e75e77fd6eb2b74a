"""What a peer is: another way to decode the same prompts, that a bench runs beside this project's
own lanes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ...engine import Engine
    from ...models.fetch import Progress


@dataclass(frozen=True)
class PeerFacts:
    """What a row of the table must name.

    Attributes:
        engine: the program and its version.
        weights: which weights it reads.
        dtype: what they are stored in, ``bfloat16`` and ``float32`` written as torch does.
        threads: of its computing.
        drafts: how it drafts; empty where it decodes plainly.
        note: what else a reader must know, a sentence or nothing.
    """

    engine: str
    weights: str
    dtype: str
    threads: int
    drafts: str = ""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class PeerAnswer:
    """One greedy answer.

    Attributes:
        ids: every output token.
        tokens: how many of them were decoded in ``seconds``; the first one, or the whole first
            round of a drafting peer, belongs to the prefill.
        ttft_seconds: until then.
        rounds: target passes of the decoding, where the peer tells them.
    """

    ids: list[int]
    tokens: int
    seconds: float
    ttft_seconds: float
    rounds: int | None = None


class RunningPeer(Protocol):
    """A peer with its weights in memory."""

    @property
    def facts(self) -> PeerFacts: ...

    def answer(self, ids: list[int], max_new_tokens: int) -> PeerAnswer:
        """Greedy continuation of the prompt's ids.

        Raises:
            UserError: it failed; the sentence says how.
        """

    def close(self) -> None: ...


@dataclass(frozen=True)
class PeerSetup:
    """What peers are opened for.

    Attributes:
        engine: the pair whose target they run.
        context: positions that the longest prompt with its answer may take.
    """

    engine: Engine
    context: int
    progress: Progress

    @property
    def threads(self) -> int:
        """Computing threads of every row: those of the engine where nothing else runs."""
        import torch

        return self.engine.pace.most if self.engine.pace else torch.get_num_threads()

    @property
    def dtype(self) -> str:
        return str(self.engine.target.dtype).removeprefix("torch.")
