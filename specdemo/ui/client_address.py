"""Which network address a request comes from, to give each a fair share of the queue."""

from __future__ import annotations

import ipaddress
from typing import Any

LOCAL = ("127.0.0.1", "::1")


def address_of(request: Any, behind_proxy: bool = False) -> str:
    """The client's address; of an IPv6 address the network of 64 bits, which one household has.

    Args:
        request: Gradio's, or Starlette's.
        behind_proxy: whether a platform's proxy stands in front of this server. Its
            ``X-Forwarded-For`` header is used there and nowhere else, as a client can write it
            too: of its addresses the last public one, which the proxy itself has added.
    """
    client = request.client
    host = client.host if client is not None else ""
    if behind_proxy:
        forwarded = (_parse(part) for part in request.headers.get("x-forwarded-for", "").split(","))
        host = next((str(a) for a in reversed(list(forwarded)) if a and a.is_global), host)
    address = _parse(host)
    if address is not None and address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host if address is None else str(address)


def is_local(request: Any) -> bool:
    """Whether the browser runs on this machine."""
    return request.client is not None and request.client.host in LOCAL


def _parse(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
