"""Plotly's library for the panel of a visit's races, out of the package that draws the bench."""

from __future__ import annotations

import functools
import gzip

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PATH = "/specdemo/plotly.js"


@functools.lru_cache(maxsize=1)
def _packed() -> bytes:
    from plotly.offline import get_plotlyjs

    return gzip.compress(get_plotlyjs().encode("utf-8"), 6)


def _script(request: Request) -> Response:
    body, headers = _packed(), {"cache-control": "public, max-age=86400"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers |= {"content-encoding": "gzip", "vary": "accept-encoding"}
    else:
        body = gzip.decompress(body)
    return Response(body, media_type="text/javascript", headers=headers)


PLOTLY_ROUTE = Route(PATH, _script)
