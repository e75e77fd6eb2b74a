"""A made-up accelerator: tensors say they are on ``cuda:0`` while their values lie on the host, and
mixing the two fails as it does on a GPU.

It finds, without a GPU, a tensor left behind on the host, a buffer that did not move, every place
where the host waits for the device, and what a captured graph must not contain. It cannot find
kernels that compute otherwise, memory that runs out, or faults of streams.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch.nn.utils import clip_grad
from torch.overrides import TorchFunctionMode

import specdemo

from . import made_up_graphs
from .made_up_graphs import record, refuse_while_capturing

PACKAGE = f"{Path(specdemo.__file__).parent}/"
DEVICE = torch.device("cuda", 0)
aten = torch.ops.aten
# these take both kinds
MIXING = {
    aten.copy_.default,
    aten.index.Tensor,
    aten.index_put_.default,
    aten.index_put.default,
    aten._index_put_impl_.default,
}
READING = {getattr(torch.Tensor, name) for name in ("tolist", "item", "__float__", "__int__")}
READING |= {torch.Tensor.__bool__, torch.Tensor.__index__}
WAITING = {aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default}


class Pretended(torch.Tensor):
    """A tensor on the made-up device; ``host`` holds its values."""

    host: torch.Tensor

    @staticmethod
    def __new__(cls, real: torch.Tensor) -> Pretended:
        with torch.inference_mode(False):
            made = torch.Tensor._make_wrapper_subclass(
                cls,
                real.shape,
                strides=real.stride(),
                storage_offset=real.storage_offset(),
                dtype=real.dtype,
                device=torch.device("cpu"),
            )
        made.host = real
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    device = property(lambda self: DEVICE)
    is_cuda = property(lambda self: True)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Pretended({self.host!r})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        strangers: list[torch.Tensor] = []

        def on_host(x: torch.Tensor) -> torch.Tensor:
            if isinstance(x, Pretended):
                return x.host
            if x.dim():
                strangers.append(x)
            return x

        there = each_tensor(on_host, args)
        there_too = each_tensor(on_host, kwargs or {})
        if strangers and func not in MIXING:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but {func} got"
                f" {[tuple(x.shape) for x in strangers]} on cpu beside cuda:0"
            )
        # how many rows it gives is known on the device alone
        masks = func is aten.index.Tensor and any(
            x is not None and x.dtype == torch.bool for x in args[1]
        )
        if func in WAITING or masks:
            waited(str(func))
        if func is aten.copy_.default:
            _note_copy(*args, **(kwargs or {}))
        if func is aten._fused_sdp_choice.default:
            return 0  # plain products: no kernel of the host's own
        out = func(*there, **there_too)
        record(func, there, there_too, out)
        if kwargs and "out" in kwargs or out is None:
            return (kwargs or {}).get("out")
        name = func._schema.name
        if name.endswith("_") and not name.endswith("__"):
            return args[0]
        return each_tensor(Pretended, out)


def each_tensor(change: Callable[[torch.Tensor], torch.Tensor], x: Any) -> Any:
    """``change`` at every tensor in ``x``. (torch's own tree functions take longer than the work
    itself.)
    """
    if isinstance(x, torch.Tensor):
        return change(x)
    if isinstance(x, (tuple, list)):
        return type(x)([each_tensor(change, part) for part in x])
    if isinstance(x, dict):
        return {name: each_tensor(change, part) for name, part in x.items()}
    return x


WAITS: list[str] = []  # "what file:line" of our code, in the order they happened


UPLOADS: list[str] = []  # likewise, where values were copied there with the host waiting


WAIT_FOR_EVENT = "synchronize of an event"
sync_debug_mode = "default"  # of :func:`torch.cuda.set_sync_debug_mode`


def set_sync_debug_mode(mode: str) -> None:
    global sync_debug_mode
    sync_debug_mode = mode


def waited(what: str, places: list[str] = WAITS) -> None:
    refuse_while_capturing(what)
    if sync_debug_mode == "error" and what != WAIT_FOR_EVENT:
        raise RuntimeError(f"called a synchronizing CUDA operation: {what}")
    frame: FrameType | None = sys._getframe(1)
    while frame and not _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    place = frame and f" {frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_lineno}"
    places.append(f"{what}{place or ''}")


def _is_ours(file: str) -> bool:
    """Whether it is a file of the package, the instrument's own apart."""
    return file.startswith(PACKAGE) and not Path(file).name.startswith("made_up")


def _note_copy(goal: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> None:
    """A copy between host and device lets the host wait unless it is told not to."""
    if non_blocking or isinstance(goal, Pretended) == isinstance(source, Pretended):
        return
    if isinstance(goal, Pretended):
        waited("upload", UPLOADS)
    else:
        waited("copied to the host")


def lift(x: torch.Tensor) -> torch.Tensor:
    return x if isinstance(x, Pretended) else Pretended(x.detach())


class Pretending(TorchFunctionMode):
    """Catches what Python code says about devices before torch looks for a real one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu):
            return moved(func, args, kwargs)
        if func is torch.Tensor.pin_memory:
            return args[0]
        if args and isinstance(args[0], Pretended):
            # in inference mode these never come to __torch_dispatch__
            if func in READING:
                waited(func.__name__)
                return func(args[0].host)
            if func in (torch.Tensor.numpy, torch.Tensor.__array__):
                raise TypeError(
                    "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first."
                )
        if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cuda":
            if func in (torch.tensor, torch.as_tensor):
                waited("upload", UPLOADS)
            kwargs["device"] = "cpu"
            made = func(*args, **kwargs)
            record(func, args, kwargs, made)
            return each_tensor(lift, made)
        return func(*args, **kwargs)


def moved(func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    """``Tensor.to`` in all its forms, ``cuda`` and ``cpu``."""
    x, rest = args[0], [] if func is not torch.Tensor.to else list(args[1:])
    where = {torch.Tensor.cuda: DEVICE, torch.Tensor.cpu: torch.device("cpu")}.get(
        func, kwargs.get("device")
    )
    dtype = kwargs.get("dtype")
    for word in rest:
        if isinstance(word, torch.Tensor):
            where, dtype = word.device, word.dtype
        elif isinstance(word, torch.dtype):
            dtype = word
        elif isinstance(word, (str, torch.device)):
            where = torch.device(word)
    if where is not None and torch.device(where).type == "cpu" and isinstance(x, Pretended):
        waited("to the host")
        x = x.host
    elif where is not None and torch.device(where).type == "cuda":
        if not isinstance(x, Pretended) and not kwargs.get("non_blocking"):
            waited("upload", UPLOADS)
        x = lift(x)
    return x if dtype is None else torch.Tensor.to(x, dtype)


def by_device(groups: Any, *_: Any, **__: Any) -> dict[Any, Any]:
    """What torch's own grouping, which asks below Python, would say."""
    return {(groups[0][0].device, groups[0][0].dtype): (list(groups), list(range(len(groups[0]))))}


@contextlib.contextmanager
def pretended_gpu() -> Iterator[list[str]]:
    """Inside, ``cuda`` is there and is the made-up device; yields the list of places where the host
    waited for it.
    """
    autocast, generator, overwrite = (
        torch.autocast,
        torch.Generator,
        torch.__future__.get_overwrite_module_params_on_conversion(),
    )
    answers = {
        "is_available": True,
        "is_bf16_supported": True,
        "empty_cache": None,
        "get_device_name": "a made-up accelerator",
        "current_device": 0,
    }
    with contextlib.ExitStack() as stack:
        for name in ("Stream", "stream", "current_stream", "graph_pool_handle"):
            stack.enter_context(mock.patch.object(torch.cuda, name, mock.MagicMock()))
        stands_in = {
            "CUDAGraph": made_up_graphs.MadeUpGraph,
            "graph": made_up_graphs.graph,
            "Event": made_up_graphs.event_class(waited),
            "synchronize": lambda *_: waited("synchronize"),
            "set_sync_debug_mode": set_sync_debug_mode,
        }
        for name, made in stands_in.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, made))
        for name, answer in answers.items():
            stack.enter_context(
                mock.patch.object(torch.cuda, name, lambda *_, answer=answer, **__: answer)
            )
        stack.enter_context(
            mock.patch.object(
                torch, "autocast", lambda _, *more, **options: autocast("cpu", *more, **options)
            )
        )
        stack.enter_context(mock.patch.object(torch, "Generator", lambda *_, **__: generator()))
        stack.enter_context(
            mock.patch.object(clip_grad, "_group_tensors_by_device_and_dtype", by_device)
        )
        # a parameter becomes another object when its module moves
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, overwrite)
        stack.enter_context(Pretending())
        WAITS.clear()
        UPLOADS.clear()
        yield WAITS
