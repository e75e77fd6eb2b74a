"""A block drafter during one run: its context cache, its passes, and its logits as short lists of
candidates.

Shapes: ``B`` blocks of ``w`` slots, ``n`` positions, ``H`` hidden size, ``Vd`` the drafter's own
vocabulary, which may be smaller than the target's ``V``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch

from ...errors import UserError
from ...huge_pages import use_huge_pages
from ...models.block_drafter import MASK, BlockDrafter
from ...models.diffusion_lm import DiffusionLM
from ...models.kinds import role_for
from ...models.markov import CANDIDATES, shortlist
from .adaptive import EMA
from .base import Context, NotFinite
from .candidates import Candidates, CandidateTable
from .packed import DevicePass, PackedShape
from .params import P

if TYPE_CHECKING:
    from ...models.load import Loaded

TOP_K = 8  # candidates read at every position, recorded or not, so that recording changes nothing
# candidates of a position after which the Markov head is evaluated; after any other token the next
# position keeps its unconditional candidates
MAX_PREV = 12


@runtime_checkable
class OnePass(Protocol):
    """A method whose rounds take one pass of one network: :meth:`BlockContext.table` with its
    parameters ``gamma`` and ``markov_head``.

    Attributes:
        drafts_next: whether the next proposal probably takes it.
    """

    network: BlockContext

    @property
    def params(self) -> Any: ...

    @property
    def drafts_next(self) -> bool: ...


class BlockContext:
    """Wraps one block drafter, or diffusion language model, for the length of one run.

    Attributes:
        net: the drafter. vocab_ids: ``[Vd]`` target ids of its columns, None = the same ids.
        max_masks: masks in one block.
        pass_ms: moving average of the milliseconds of one pass, extending the context included,
            without recording.
        banned_column: column of the mask token, which is never proposed.
        device_pass: what computes :meth:`table` in its stead, set by an engine that has it;
            ``ahead_ms`` are the milliseconds of the last table's pass that ran before it was asked
            for.
    """

    def __init__(self, net: BlockDrafter | DiffusionLM, device: torch.device | str = "cpu") -> None:
        self.net: Any = net  # two classes with one interface
        self.device = torch.device(device)
        self.layer_ids = tuple(net.layer_ids)
        self.weights = net.weights
        self.vocab_ids = net.vocab_ids
        self.max_masks = net.most_masks
        self.pass_ms = EMA()
        self.banned_column = _column(net.vocab_ids, net.config.mask_token_id)
        self.device_pass: DevicePass | None = None
        self.ahead_ms = 0.0

    def column(self, token: int) -> int:
        """The drafter's column of a token that it proposed."""
        found = _column(self.vocab_ids, token)
        assert found is not None
        return found

    def start(self, capacity: int) -> None:
        """Forget the last run; make room for ``capacity`` positions."""
        self.device_pass, self.ahead_ms = None, 0.0
        self.cache = self.net.new_cache(capacity)

    def fit(self, params: P, *names: str, other: BlockContext | None = None) -> P:
        """``params`` whose numbers of masks, ``gamma`` unless named, fit one block of this drafter
        (and of the ``other`` one): a default is lowered to a shorter block.

        Raises:
            UserError: a number that is not the default does not fit.
        """
        most = min(self.max_masks, other.max_masks if other else self.max_masks)
        for name in names or ("gamma",):
            if (value := getattr(params, name)) <= most:
                continue
            if value != type(params).model_fields[name].default:
                raise UserError(
                    f"{name} = {value} is more than this drafter's block of {most} masks"
                    f" ({self.weights}), fixed when it was trained; choose {name} up to {most}, or"
                    " a pair whose drafter has a longer block or is a stand-alone diffusion"
                    " language model."
                )
            params = params.model_copy(update={name: most})
        return params

    def catch_up(self, context: Context, features: tuple[torch.Tensor, int] | None = None) -> None:
        """Extend the cache by the target's hidden states of every token committed since the last
        call, which may be several rounds ago; a drafter that stands alone takes the tokens.

        Args:
            features: what ``context.take_features()`` gave, where two networks share it.
        """
        if self.net.reads_text:
            self.net.read(self.cache, context.ids)
        else:
            self.extend(*(context.take_features() if features is None else features))
        remark_window(self.net, context)

    def extend(self, features: torch.Tensor, start: int) -> None:
        """Extend the cache by ``features [n, len(layer_ids) * hidden]`` of the positions from
        ``start`` on.
        """
        if not features.shape[0]:
            return
        if self.device_pass is not None:
            self.device_pass.extend(features, start)
        else:
            self.net.extend(self.cache, features, start)

    def hidden(
        self, blocks: Sequence[Sequence[int]] | torch.Tensor, anchor_position: int
    ) -> torch.Tensor:
        """One pass over ``B`` blocks ``[anchor, tokens or MASK ...]`` of ``w`` slots: ``[B, w,
        H]``, where slot k predicts position ``anchor_position + k``.
        """
        return self.net.hidden(
            torch.as_tensor(blocks, dtype=torch.int64, device=self.device),
            anchor_position,
            self.cache,
        )

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[..., H]`` to float32 ``[..., Vd]``; the mask token's column is −inf."""
        logits = self.net.logits(hidden).float()
        if self.banned_column is not None and self.banned_column < logits.shape[-1]:
            logits[..., self.banned_column] = float("-inf")
        return logits

    def scores(
        self, hidden: torch.Tensor, context: Context, positions: Sequence[int] | None = None
    ) -> torch.Tensor:
        """:meth:`logits` of states ``[n, H]`` to choose from: with the target's noise where the
        context couples them.

        Args:
            positions: of the states in the text; None: those after the anchor.
        """
        logits = self.logits(hidden)
        if context.couple is None:
            return logits
        after = range(len(context.ids), len(context.ids) + len(logits))
        return context.couple(logits, after if positions is None else positions, self.vocab_ids)

    def fill(self, context: Context, gamma: int) -> torch.Tensor:
        """Catch up, then one pass over the anchor and ``gamma`` masks: scores ``[gamma, Vd]``, cut
        to the engine's budget.
        """
        self.catch_up(context)
        return self.scores(self._mask_states(context, gamma), context)

    def table(
        self, context: Context, gamma: int, markov_head: bool = True, catch_up: bool = True
    ) -> CandidateTable:
        """Catch up (unless told not to), then one pass over the anchor and ``gamma`` masks: its
        candidates at ``gamma`` positions, cut to the engine's budget.
        """
        if catch_up:
            self.catch_up(context)
        if self.device_pass is not None:
            packed, self.ahead_ms = self.device_pass.candidates()
            return self.unpack(packed, self.device_pass.shape)
        states = self._mask_states(context, gamma)
        scores = self.scores(states, context)
        return self.to_table(states, markov_head, {0: context.ids[-1]}, scores)

    def _mask_states(self, context: Context, gamma: int) -> torch.Tensor:
        """States ``[gamma, H]`` of the masks of one pass, cut to the engine's budget."""
        block = [context.ids[-1]] + [MASK] * gamma
        return self.hidden([block], len(context.ids) - 1)[0, 1 : context.budget + 1]

    def to_table(
        self,
        hidden: torch.Tensor,
        markov_head: bool = True,
        before: Mapping[int, int] | None = None,
        scores: torch.Tensor | None = None,
    ) -> CandidateTable:
        """States ``[n, H]`` of neighbouring slots as candidates; with ``markov_head`` the drafter's
        head, if it has one, conditions each slot on the token before it.

        Args:
            before: of slots that stand behind a known token: the token. The first is one of them.
            scores: ``[n, Vd]`` of :meth:`scores`, if they are known.

        Raises:
            NotFinite: a probability is not a number.
        """
        before = before or {}
        tokens = torch.tensor(list(before.values()), dtype=torch.int64, device=self.device)
        packed, shape = self.pack(hidden, markov_head, tokens, tuple(before), scores)
        return self.unpack(packed.cpu(), shape)

    def packed_shape(self, n: int, columns: int, markov_head: bool = True) -> PackedShape:
        """What :meth:`pack` gives for ``n`` states over a vocabulary of that many columns."""
        pairs = self.net.pair_head
        if markov_head and pairs is not None and n:
            wide = min(pairs.candidates, columns)
            after = min(pairs.tokens, wide)
            return PackedShape(n, wide, after, min(TOP_K, wide), int(pairs.has_confidence))
        if not markov_head or n < 2 or self.net.markov_tables is None:
            return PackedShape(n, min(TOP_K, columns), 0, 0)
        wide = min(CANDIDATES, columns)
        return PackedShape(n, wide, min(MAX_PREV, wide), min(TOP_K, wide))

    def pack(
        self,
        hidden: torch.Tensor,
        markov_head: bool = True,
        before: torch.Tensor | None = None,
        starts: Sequence[int] = (0,),
        scores: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, PackedShape]:
        """The candidates of states ``[n, H]`` as one float64 vector on the device, so that one copy
        brings them to the host; see :meth:`unpack`.

        Args:
            before: target ids ``[len(starts)]`` of the known tokens before the slots ``starts``;
                what a published head needs.
        """
        logits = self.logits(hidden) if scores is None else scores
        shape = self.packed_shape(len(hidden), logits.shape[-1], markov_head)
        if not shape.after:
            best, columns = logits.topk(shape.candidates, dim=-1)
            parts = [self._ids(columns), (best - logits.logsumexp(-1, keepdim=True)).exp()]
        elif self.net.pair_head is not None:
            assert before is not None
            found = self.net.pair_head.follow(hidden, logits, starts, before, self.vocab_ids)
            parts = [self._ids(found.columns), found.alone, found.probs, self._ids(found.after)]
            parts += [] if found.confidence is None else [found.confidence]
        else:
            # the head's candidates, and the likeliest of them after each of the tokens before
            assert self.net.markov_tables is not None
            columns, logp = shortlist(logits)
            next_probs, next_index = self.net.markov_tables(
                hidden[1:], columns[:-1, : shape.after], columns[1:], logp[1:]
            ).topk(shape.kept, dim=-1)
            after = columns[1:, None].expand(-1, shape.after, -1).gather(-1, next_index)
            parts = [self._ids(columns), logp.exp(), next_probs, self._ids(after)]
        return torch.cat([part.flatten().double() for part in parts]), shape

    def _ids(self, columns: torch.Tensor) -> torch.Tensor:
        """Target ids of columns of the drafter's vocabulary."""
        return columns if self.vocab_ids is None else self.vocab_ids[columns]

    def unpack(self, packed: torch.Tensor, shape: PackedShape) -> CandidateTable:
        """What :meth:`pack` made, on the host: the unconditional candidates, and the conditional
        ones where there is a head.

        Raises:
            NotFinite: a probability is not a number.
        """
        if not packed.isfinite().all():
            raise NotFinite
        n, wide, after, kept = shape[:4]
        ids, probs, next_probs, next_ids, confidence = packed.split(shape.sizes)
        id_rows = ids.long().view(n, wide).tolist()
        prob_rows = probs.view(n, wide)[:, :TOP_K].tolist()
        rows = [
            [(i, p) for i, p in zip(*row, strict=False) if p > 0]
            for row in zip(id_rows, prob_rows, strict=True)
        ]
        if not after:
            return CandidateTable(rows)
        return CandidateTable(
            rows,
            id_rows,
            next_probs.view(-1, after, kept).numpy(),
            next_ids.long().view(-1, after, kept).numpy(),
            confidence.tolist(),
        )

    def add_pass_time(self, began: float) -> None:
        """Add the time since ``began`` (``time.perf_counter()``) to ``pass_ms``, and what ran
        before it; call it after the candidates are on the host.
        """
        self.pass_ms.add((time.perf_counter() - began) * 1e3 + self.ahead_ms)

    def top_candidates(self, logits: torch.Tensor, k: int = TOP_K) -> list[Candidates]:
        """See :func:`top_candidates`."""
        return top_candidates(logits, self.vocab_ids, k)


def top_candidates(
    logits: torch.Tensor, vocab_ids: torch.Tensor | None, k: int = TOP_K
) -> list[Candidates]:
    """The ``k`` likeliest candidates of every position of ``[..., Vd]`` logits, positions
    flattened; one copy to the host. Probabilities are a float32 softmax over all ``Vd`` columns.

    Raises:
        NotFinite: a probability is not a number.
    """
    logits = logits.reshape(-1, logits.shape[-1])
    best, columns = logits.topk(min(k, logits.shape[-1]), dim=-1)
    probs = (best - logits.logsumexp(-1, keepdim=True)).exp()
    ids = columns if vocab_ids is None else vocab_ids[columns]
    packed = torch.stack((ids.double(), probs.double())).cpu()
    if not packed.isfinite().all():
        raise NotFinite
    return [
        [(int(i), p) for i, p in zip(*row, strict=True) if p > 0]
        for row in zip(*packed.tolist(), strict=True)
    ]


def remark_window(net: Any, context: Context) -> None:
    """Tell whoever reads the race where the text is longer than what ``net`` reads."""
    window = getattr(net.config, "context_window", None)
    if window is not None and len(context.ids) - 1 > window:  # without the anchor
        context.remark(
            f"The text is longer than what the drafter was trained on, so it reads only the last"
            f" {window} tokens; its drafts may be worse than early in the text."
        )


def _column(vocab_ids: torch.Tensor | None, token_id: int | None) -> int | None:
    """The drafter's column of a target id, None where it has none."""
    if token_id is None or vocab_ids is None:
        return token_id
    found = (vocab_ids == token_id).nonzero()
    return int(found[0, 0]) if len(found) else None


def load_network(loaded: Loaded, kind: str) -> Any:
    """The pair's drafter of that kind, bound to the target; where it has none of its own its
    ``weights`` say which it uses instead.
    """
    from ...models.drafters import load_drafter

    late = kind not in loaded.networks  # not loaded with the target, which moves both
    network = load_drafter(loaded.pair, kind, loaded)
    if late and loaded.device.type == "cpu":
        use_huge_pages()
    return network


def open_context(
    loaded: Loaded, kind: str = "block", other: BlockContext | None = None
) -> BlockContext:
    """A context of the pair's drafter of that kind; ``other`` itself where the pair has no separate
    weights for the kind.
    """
    named = loaded.pair.drafters
    places = [named.get(role_for(k, named) or k) for k in (kind, "block")]
    if other is not None and places[0] == places[1]:
        return other
    return BlockContext(load_network(loaded, kind), loaded.device)
