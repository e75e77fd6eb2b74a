"""Huge pages for packed weights, on Linux.

A small target streams all its weights in every pass; in pages of 2 MB instead of 4 kB the processor
walks page tables less often. torch asks for them for its own large tensors
(``THP_MEM_ALLOC_ENABLE``, see the package), but oneDNN's packed weights come from ``malloc`` and
have no address that Python could ask for. So after loading, the process's own filled memory is
asked for: ``madvise(MADV_COLLAPSE)`` moves it at once, in place (Linux 6.1; before that the kernel
does it in the background). The other way, ``GLIBC_TUNABLES=glibc.malloc.hugetlb=1``, is read when a
process starts and would need a second start of Python, and would not reach a notebook.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = 2 << 20  # bytes of a huge page; on processors with other sizes nothing is moved
FULL = 0.9  # a region that is emptier than this is left alone: it would grow
MADV_COLLAPSE = 25  # not among the constants of mmap

SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")
SIZE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
REGIONS = Path("/proc/self/smaps")
_HEADER = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+) ")


def use_huge_pages() -> int:
    """Move the process's filled anonymous memory to huge pages; best effort.

    Nothing happens where the system has them switched off, or where ``THP_MEM_ALLOC_ENABLE`` is 0.

    Returns:
        Bytes of the regions that the kernel was willing to move.
    """
    try:
        if (
            sys.platform != "linux"
            or os.environ.get("THP_MEM_ALLOC_ENABLE") == "0"
            or "[never]" in SWITCH.read_text()
            or int(SIZE.read_text()) != PAGE
        ):
            return 0
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        text = REGIONS.read_text()
    except (OSError, ValueError, AttributeError):
        return 0
    moved = 0
    for start, end in small_paged(text):
        # a region that changed meanwhile is refused, or gains: neither is a fault
        if madvise(start, end - start, mmap.MADV_HUGEPAGE) == 0:
            madvise(start, end - start, MADV_COLLAPSE)
            moved += end - start
    return moved


def small_paged(smaps: str) -> Iterator[tuple[int, int]]:
    """Start and end, both at a huge page, of the private anonymous regions that are filled but not
    in huge pages, from the text of ``/proc/self/smaps``.
    """
    for region in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", smaps):
        header = _HEADER.match(region)
        if header is None or header[3] != "rw-p" or header[4] != "0":
            continue
        kb = {}
        for line in region.splitlines()[1:]:
            name, _, value = line.partition(":")
            with contextlib.suppress(ValueError):
                kb[name] = int(value.removesuffix("kB"))
        filled, huge = kb.get("Rss", 0), kb.get("AnonHugePages", 0)
        start, end = -(-int(header[1], 16) // PAGE) * PAGE, int(header[2], 16) // PAGE * PAGE
        if start < end and filled >= FULL * kb.get("Size", 0) and (filled - huge) << 10 >= PAGE:
            yield start, end
