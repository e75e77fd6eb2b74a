"""The documentation says what the code does: the worked example runs, links lead somewhere."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest
from tiny import tiny_engine

from specdemo import drafters
from specdemo.drafters import METHODS
from specdemo.engine import race
from specdemo.request import Request

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]


def test_the_smallest_method_of_contributing_races(monkeypatch):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    file, entry = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    module = types.ModuleType("specdemo.drafters.repeat")
    module.__package__ = "specdemo.drafters"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(file, "repeat.py", "exec"), vars(module))
    monkeypatch.setitem(METHODS, "repeat", eval(entry, vars(drafters) | {"repeat": module}))
    request = Request("5 7 5 7", method="repeat", params={"n": 3}, max_new_tokens=12)
    events = [event.to_dict() for event in race(tiny_engine(), request)]
    drafts = [event for event in events if event["kind"] == "draft"]
    assert drafts and any(len(draft["tokens"]) == 3 for draft in drafts)
    assert events[-1]["result"]["identical"] is True


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_lead_somewhere(page):
    """Relative links of the page, and the files that its code spans name, exist."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?://|#)([^)#]+)", text):
        assert ((ROOT / page).parent / link).exists(), link
    for path in re.findall(r"`((?:specdemo|tests|docs|assets)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
