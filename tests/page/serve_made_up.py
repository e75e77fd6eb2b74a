"""A page with made-up races in a process of its own, for the load test: prints its address, then
its state as one line of JSON for every line it reads.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import psutil

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]


def main() -> None:
    from fake_backend import FakeBackend
    from tools import serving, write_assets

    from specdemo.ui.controls import Limits

    backend = FakeBackend(pace=0.02)
    limits = replace(Limits(), behind_proxy=True, race_seconds=5.0)
    with tempfile.TemporaryDirectory() as folder:
        with serving(backend, write_assets(Path(folder)), limits=limits) as (url, demo):
            print(url, flush=True)
            server, process = demo.races, psutil.Process(os.getpid())
            for _ in sys.stdin:
                state = {
                    "megabytes": process.memory_info().rss / 1e6,
                    "races": len(backend.asked),
                    "prompts": [r.prompt[:40] for r in backend.asked],
                    "most": backend.most,
                    "waiting": server.queue.waiting() + len(server.line.api_calls()),
                    "in_line": len(demo._queue),
                    "last": len(server.last),
                    "sessions": len(demo.app.state_holder.session_data),
                }
                print(json.dumps(state), flush=True)


if __name__ == "__main__":
    main()
