"""Where the page's races run: in this process, or in the worker process that ZeroGPU gives a GPU to
for a short while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..request import Request

if TYPE_CHECKING:
    from ..bench.schema import Report
    from ..models.served import Served

NOT_HERE = "not on this computer"


def served_by(pair: str) -> Served | None:
    """Where an engine serves that pair, if one does."""
    from ..models.pairs import get_pair

    return get_pair(pair).engine


def is_attached(engine: Any) -> bool:
    from ..attached.race import Attached

    return isinstance(engine, Attached)


class Backend:
    """Loads and runs in this process. torch is imported with the first load, behind the page.

    Args:
        dtype: of all targets; None: what the machine is fast at.
    """

    can_bench = True

    def __init__(self, dtype: str | None = None):
        self.dtype = dtype

    def load(self, pair: str, progress: Callable[[str, float | None], None]) -> Any:
        if (served := served_by(pair)) is not None:
            from ..attached.race import attach

            progress("Asking the engine", None)
            return attach(pair, served)
        from ..engine import load_engine

        return load_engine(pair, self.dtype, progress=progress)

    def fetch(self, pair: str, progress: Callable[[str, float | None], None]) -> None:
        """What can be fetched of a pair onto this computer, as far as it is not there; the target
        is looked at as closely as is possible without its weights. A drafter's folder that is not
        there is told by the methods that need it (``Method.refuse_pair``).

        Raises:
            UserError: what is missing or cannot be run, with its reason.
        """
        from ..engine.load import check_without_weights
        from ..models.fetch import drafter_folder
        from ..models.pairs import get_pair

        wanted = get_pair(pair)
        if wanted.engine is not None:
            return
        check_without_weights(wanted, progress)
        for kind, place in wanted.drafters.items():
            if not place.startswith("hub:"):
                continue
            try:
                drafter_folder(place, progress)
            except UserError as error:
                raise UserError(
                    f"The {kind} drafter of {pair} could not be fetched: {error}; with network"
                    " access try again, or choose another pair."
                ) from None

    def refuse(self, pair: Any) -> str:
        """Why a run on ``pair`` will be refused, as far as that is known without a network; else
        empty.
        """
        from ..models.fetch import find_target

        if pair.engine is not None:
            return ""
        try:
            if find_target(pair) or any("path" not in source for source in pair.target):
                return ""
        except UserError as error:
            return str(error)
        folders = ", ".join(source["path"] for source in pair.target)
        return f"The target of {pair.id} is not in {folders}; put it there, or correct models.yaml."

    def missing(self, pair: Any) -> str:
        """What of a pair is not on this computer, in a few words; empty where all is. Touches no
        network.
        """
        from ..models.status import status_of

        if pair.engine is not None:
            return ""
        status = status_of(pair)
        absent = [pair.drafters[kind] for kind, here in status["drafters"].items() if not here]
        words = []
        if status["target"] is None or any(place.startswith("hub:") for place in absent):
            words.append(NOT_HERE)
        if not status["drafters"]:
            words.append("no drafter")
        elif not all(place.startswith("hub:") for place in absent):
            words.append("a drafter is missing")
        return ", ".join(words)

    def runs_on_cpu(self, engine: Any) -> bool:
        """Whether races compute on this machine's CPU, which a browser on it also needs."""
        return not is_attached(engine) and engine.target.device.type == "cpu"

    def race(
        self, engine: Any, request: Request, cancel: threading.Event
    ) -> Generator[Any, None, None]:
        """Events of one race. ``cancel`` ends it within one round or chunk of the prompt,
        ``close()`` at once.
        """
        if is_attached(engine):
            from ..attached.race import race as attached_race

            yield from attached_race(engine, request, cancel)
            return
        from ..engine import race

        yield from race(engine, request, cancel)

    def bench(
        self,
        engine: Any,
        methods: list[str],
        prompts: list[tuple[str, str]],
        new_tokens: int,
        cancel: threading.Event,
    ) -> Iterator[tuple[float, Report | None, str]]:
        """A short bench over (category, prompt) pairs: (fraction done, report so far or None, what
        comes next).
        """
        if is_attached(engine):
            raise UserError(
                "A pair that an engine serves is measured from the command line: “python -m"
                " specdemo load”."
            )
        from ..bench import short_run
        from ..prompts import Prompt

        return short_run(
            engine,
            methods,
            [Prompt(str(n), category, prompt) for n, (category, prompt) in enumerate(prompts, 1)],
            new_tokens,
            cancel=cancel,
        )


class ZeroGpuBackend(Backend):
    """Races run by ``stream(pair, request)``, a generator of plain event dicts in a worker process
    that has the GPU for a short while (:meth:`.gpu_worker.GpuWorker.stream`).

    Nothing but plain data crosses. Stop closes the generator, which is looked at between two
    events.
    """

    can_bench = False  # it would use up a visitor's share of the GPU

    def __init__(
        self, stream: Callable[[str, dict[str, Any]], Generator[dict[str, Any], None, None]]
    ):
        super().__init__()
        self.stream = stream

    def load(self, pair: str, progress: Callable[[str, float | None], None]) -> Any:
        """Only the files: fetching them in the worker process would use up a visitor's share of the
        GPU.
        """
        from ..models.fetch import target_folder
        from ..models.pairs import get_pair

        if served_by(pair) is not None:
            return super().load(pair, progress)
        target_folder(get_pair(pair), progress)
        return pair

    def runs_on_cpu(self, engine: Any) -> bool:
        return False

    def race(
        self, engine: Any, request: Request, cancel: threading.Event
    ) -> Generator[Any, None, None]:
        if is_attached(engine):  # no GPU is needed here
            yield from super().race(engine, request, cancel)
            return
        events = self.stream(engine, request.to_dict())
        try:
            for event in events:
                if "error" in event:
                    raise UserError(event["error"])
                yield event
                if cancel.is_set():
                    return
        finally:
            events.close()
