"""A race as one HTML file that needs nothing else: the same renderer, the events inside, no
network.
"""

from __future__ import annotations

import json
from typing import Any

from ..events import Event
from .bundle import bundle, style
from .streaming import as_dict


def safe_json(data: Any) -> str:
    """JSON that can stand inside a script element: no ``<``, no line separators that old parsers
    take for line ends.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta
  http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';
    img-src data: blob:"
>
<title>SpecDemo: a recorded race</title>
<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; }
body { margin: 0; background: #fff; }
@media (prefers-color-scheme: dark) { body { background: #12161b; } }
main { max-width: 1280px; margin: 0 auto; padding: 16px; }
%(style)s
</style>
</head>
<body>
<main id="race">
  <noscript>This page draws its recording with JavaScript; please allow it.</noscript>
</main>
<script type="application/json" id="events">%(events)s</script>
<script>
%(script)s.mountPage(
  document.getElementById("race"),
  JSON.parse(document.getElementById("events").textContent),
);
</script>
</body>
</html>
"""


def export_html(events: list[Event] | list[dict[str, Any]]) -> str:
    """The whole page as text. Model text lies in it only as JSON data and is drawn through
    ``textContent``.
    """
    return PAGE % {
        "style": style(),
        "script": bundle(),
        "events": safe_json([as_dict(e) for e in events]),
    }
