"""What the target says about a row of text, kept in memory: a row is read once and used several
times, each time with other anchors.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch

Reading = tuple[torch.Tensor, torch.Tensor]  # features [N, L, taps * H], last states [N, L, H]


class KeptReadings:
    """The last ``rows`` rows' features and last states, on the device that read them.

    Args:
        read: ``ids [N, L]`` to :data:`Reading`, see :class:`.packed.HiddenStateTaps`.
        rows: how many rows are kept; 0 reads every row anew.
        last: whether last states are kept as well (soft labels need them).
    """

    def __init__(self, read: Callable[[torch.Tensor], Reading], rows: int, last: bool = True):
        self.read, self.rows, self.last = read, rows, last
        self.kept: OrderedDict[int, Reading] = OrderedDict()

    def of(self, rows: Sequence[int], ids: torch.Tensor) -> Reading:
        """The reading of ``ids [N, L]``, which are the corpus rows of these numbers."""
        if not self.rows:
            return self.read(ids)
        missing = [i for i, row in enumerate(rows) if row not in self.kept]
        if missing:
            # copies: a view would keep the whole batch alive
            features, last = self.read(ids[missing])
            for at, i in enumerate(missing):
                kept_last = last[at].clone() if self.last else last[at, :0].clone()
                self.kept[rows[i]] = features[at].clone(), kept_last
        for row in rows:
            self.kept.move_to_end(row)
        out = [self.kept[row] for row in rows]
        while len(self.kept) > self.rows:
            self.kept.popitem(last=False)
        return torch.stack([f for f, _ in out]), torch.stack([l for _, l in out])


def rows_within(gigabytes: float, row_bytes: int) -> int:
    """How many rows of so many bytes fit in ``gigabytes`` (10⁹ bytes)."""
    return int(gigabytes * 1e9 / max(row_bytes, 1))
