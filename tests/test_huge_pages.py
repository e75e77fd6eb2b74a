"""Huge pages: which memory is asked for, and that a refusal is no fault."""

from __future__ import annotations

import ctypes
import mmap
import sys

import pytest

from specdemo import huge_pages
from specdemo.huge_pages import PAGE, small_paged, use_huge_pages


def region(start: int, pages: float, rss: float, huge: float = 0, kind="rw-p", inode=0, name=""):
    """One region of smaps; sizes in huge pages."""
    kb = {"Size": pages, "KernelPageSize": 4 / 2048, "Rss": rss, "AnonHugePages": huge}
    lines = "".join(f"{k + ':':<15} {int(v * 2048):8} kB\n" for k, v in kb.items())
    return (
        f"{start:x}-{start + int(pages * PAGE):x} {kind} 00000000 00:00 {inode}   {name}\n"
        f"{lines}VmFlags: rd wr mr mw me ac \n"
    )


def test_filled_private_memory_is_asked_for_in_whole_pages():
    smaps = (
        region(10 * PAGE, 4, 4)
        + region(20 * PAGE + 4096, 4, 3.9, name="[heap]")
        + region(30 * PAGE, 8, 8, huge=7.5)  # less than a page is left
        + region(40 * PAGE, 8, 8, huge=2)
        + region(50 * PAGE, 8, 1)  # a stack
        + region(60 * PAGE, 4, 4, kind="r--p")
        + region(70 * PAGE, 4, 4, inode=77, name="/a/file")
        + region(80 * PAGE + 4096, 1.5, 1.5)  # holds no whole page
    )
    assert [(a / PAGE, b / PAGE) for a, b in small_paged(smaps)] == [(10, 14), (21, 24), (40, 48)]
    assert not list(small_paged("")) and not list(small_paged("what is this?\n"))


def test_where_it_is_switched_off_or_refused_nothing_happens(tmp_path, monkeypatch):
    switch = tmp_path / "enabled"
    switch.write_text("always madvise [never]\n")
    monkeypatch.setattr(huge_pages, "SWITCH", switch)
    monkeypatch.setattr(huge_pages, "REGIONS", tmp_path / "absent")
    assert use_huge_pages() == 0
    switch.write_text("always [madvise] never\n")
    assert use_huge_pages() == 0  # no smaps
    monkeypatch.setattr(huge_pages, "SWITCH", tmp_path / "absent")
    assert use_huge_pages() == 0
    monkeypatch.undo()
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "0")
    assert use_huge_pages() == 0


@pytest.mark.parametrize("answer", [0, -1])
def test_only_what_is_listed_is_asked_for(tmp_path, monkeypatch, answer):
    calls = []

    def madvise(*arguments):
        calls.append(arguments)
        return answer

    class Library:
        pass

    Library.madvise = staticmethod(madvise)
    for name, text in (
        ("SWITCH", "[always] madvise never\n"),
        ("SIZE", f"{PAGE}\n"),
        ("REGIONS", region(10 * PAGE, 4, 4)),
    ):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(huge_pages, name, tmp_path / name)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 14, raising=False)
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE", raising=False)
    place = 10 * PAGE, 4 * PAGE
    if answer:
        assert use_huge_pages() == 0 and calls == [(*place, 14)]
    else:
        assert use_huge_pages() == 4 * PAGE and calls == [(*place, 14), (*place, 25)]
