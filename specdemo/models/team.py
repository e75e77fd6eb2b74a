"""Threads that share compiled work with the one that asks for it.

They wait in Python between two pieces of work and take part without the interpreter's lock. Work is
cut into parts that a thread takes when it comes (see :mod:`.whole_pass`), so nobody waits for one
that has not woken up yet.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

import torch

Work = Callable[[int], object]  # called with the thread's number, 0 for the one that asks


class Team:
    """As many helpers as torch's number of threads needs beside the one that asks."""

    def __init__(self) -> None:
        self._queues: list[SimpleQueue[Work | None]] = []
        self._threads: list[threading.Thread] = []

    def share(self, work: Work, threads: int | None = None) -> None:
        """Call ``work`` here and in ``threads`` - 1 others (default: torch's number), and return
        when it is done here. Others may call it later, when nothing is left to do.
        """
        helpers = (threads or torch.get_num_threads()) - 1
        while len(self._queues) < helpers:
            self._hire()
        for queue in self._queues[:helpers]:
            queue.put(work)
        work(0)

    def _hire(self) -> None:
        queue: SimpleQueue[Work | None] = SimpleQueue()
        self._queues.append(queue)
        number = len(self._queues)
        self._threads.append(threading.Thread(target=_help, args=(queue, number), daemon=True))
        self._threads[-1].start()

    def dismiss(self) -> None:
        """At the interpreter's end, which a thread in the middle of compiled work would abort."""
        for queue, thread in zip(self._queues, self._threads, strict=True):
            queue.put(None)
            thread.join(timeout=1)
        self.forget()

    def forget(self) -> None:
        """After a fork the helpers are not there any more."""
        self._queues, self._threads = [], []


def _help(queue: SimpleQueue[Work | None], number: int) -> None:
    while (work := queue.get()) is not None:
        work(number)
        del work  # and all the memory it holds, while this one waits


TEAM = Team()
atexit.register(TEAM.dismiss)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=TEAM.forget)
