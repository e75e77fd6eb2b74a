"""A target whose layers accelerate has put on several devices, or keeps elsewhere until they are
used: its hooks move rows to a layer, and an offloaded layer's weights to where it computes.
"""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import UserError

AUTO = "auto"  # the device that stands for all there are


def one_device(text: str) -> str:
    """A device of the command line, for what needs one."""
    if text == AUTO or "," in text:
        raise argparse.ArgumentTypeError("training runs on one device; name cpu or cuda")
    return text


def hook_of(module: Any) -> Any:
    """Accelerate's hook around a module's forward; None: there is none."""
    return getattr(module, "_hf_hook", None)


def is_offloaded(module: Any) -> bool:
    """Whether its weights come and go with every call."""
    return bool(getattr(hook_of(module), "offload", False))


def where(model: Any) -> str:
    """In words, what of a model is where; empty for a model on one device."""
    found = getattr(model, "hf_device_map", None) or {}
    count: dict[str, int] = {}
    for place in found.values():
        name = f"cuda:{place}" if isinstance(place, int) else str(place)
        count[name] = count.get(name, 0) + 1
    if len(count) < 2 and not any(is_offloaded(module) for module in model.modules()):
        return ""
    parts = ", ".join(f"{n} on {name}" for name, n in count.items())
    return f"its parts are spread ({parts})" if parts else "its parts are offloaded"


def refuse_offloaded_ends(model: Any) -> None:
    """Refuse a model whose embedding or head is offloaded: drafters use them all the time.

    Raises:
        UserError: one is.
    """
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    if any(end is not None and end.weight.device.type == "meta" for end in ends):
        raise UserError(
            "The embedding or the head of this target does not fit into the devices' memory and is"
            " offloaded, where drafters cannot use it; choose a smaller dtype, or a smaller pair"
            " (“python -m specdemo models --fits” says what fits)."
        )
