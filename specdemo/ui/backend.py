"""Where the page's races run: in this process, or in the worker process that ZeroGPU gives a GPU to
for a short while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..request import Request
from .choice import split_key

if TYPE_CHECKING:
    from ..bench.schema import Report
    from ..models.pairs import Pair

NOT_HERE = "not on this computer"


def is_attached(engine: Any) -> bool:
    from ..attached.race import Attached

    return isinstance(engine, Attached)


def loaded_words(engine: Any) -> str:
    """What the page says once an engine can race."""
    if not is_attached(engine):
        return "Model loaded."
    at_once = f", at most {engine.slots} at a time each (slots)" if engine.slots else ""
    return (
        f"Both endpoints answer prompts{at_once}. **Run** sends the prompt to them, out of this"
        " machine; the engine drafts and accepts by itself, so method and parameters do not matter."
    )


class Backend:
    """Loads and runs in this process. torch is imported with the first load, behind the page.

    Args:
        dtype: of all targets for which none is chosen; None: what the machine is fast at.
        own: pairs that models.yaml does not have, by their key.
    """

    can_bench = True
    can_measure = True

    def __init__(self, dtype: str | None = None, own: Mapping[str, Pair] | None = None):
        self.dtype, self.own = dtype, dict(own or {})

    def pair(self, key: str) -> tuple[Pair, str | None]:
        """The pair that :func:`.choice.engine_key` names, and its dtype.

        Raises:
            UserError: there is none.
        """
        from ..models.pairs import get_pair

        name, dtype = split_key(key)
        return self.own.get(name) or get_pair(name), dtype or self.dtype

    def own_pair(
        self, pair: str, target: str | None, drafter: str | None, thinking: bool | None
    ) -> Pair:
        """See :func:`.models.own_pair.chosen_pair`; looked at as closely as is possible without
        weights, and without fetching a target.

        Raises:
            UserError: it cannot be run.
        """
        from ..engine.load import check_without_weights
        from ..models.drafters import check_drafter_files
        from ..models.fetch import find_target
        from ..models.needs import refuse_too_large
        from ..models.own_pair import chosen_pair

        made = chosen_pair(pair, target, drafter, thinking)
        if why := self.refuse(made):
            raise UserError(why)
        refuse_too_large(made, self.dtype)
        if find_target(made):
            check_without_weights(made)
            check_drafter_files(made)
        return made

    def fits(self, pair: Any) -> tuple[list[str], list[str]]:
        """The pair's dtypes here, and a line about memory for each; touches no network."""
        if pair.engine is not None:
            return [], []
        from ..models.needs import fits

        found = fits(pair)
        return [fit.dtype for fit in found], [fit.text for fit in found]

    def load(self, key: str, progress: Callable[[str, float | None], None]) -> Any:
        pair, dtype = self.pair(key)
        if pair.engine is not None:
            from ..attached.race import attach

            progress("Asking the engine", None)
            return attach(pair.id, pair.engine)
        from ..engine import load_engine

        return load_engine(pair, dtype, progress=progress)

    def fetch(self, key: str, progress: Callable[[str, float | None], None]) -> None:
        """What can be fetched of a pair onto this computer, as far as it is not there; the target
        is looked at as closely as is possible without its weights. A drafter's folder that is not
        there is told by the methods that need it (``Method.refuse_pair``).

        Raises:
            UserError: what is missing or cannot be run, with its reason.
        """
        from ..engine.load import check_without_weights
        from ..models.fetch import drafter_folder
        from ..models.load import check_bits
        from ..models.needs import BITS, refuse_too_large

        wanted, dtype = self.pair(key)
        if wanted.engine is not None:
            return
        refuse_too_large(wanted, dtype)
        if dtype in BITS:
            check_bits(dtype)
        check_without_weights(wanted, progress)
        for kind, place in wanted.drafters.items():
            if not place.startswith("hub:"):
                continue
            try:
                drafter_folder(place, progress)
            except UserError as error:
                raise UserError(
                    f"The {kind} drafter of {wanted.id} could not be fetched: {error}; with network"
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

    def measure_again(self, engine: Any) -> str:
        """Measure what the target's passes cost anew, for later races: the result in a sentence."""
        if is_attached(engine):
            return "Another engine decodes for this pair; there are no passes to measure here."
        if not engine.measure_again():
            return "A race is going on; measure again when it has ended."
        costs = engine.costs
        some = [f"{rows} rows {costs.ms[rows]:.1f} ms" for rows in (8, 16, 64) if rows in costs.ms]
        each = ", ".join([f"one row {costs.baseline_ms:.1f} ms", *some])
        return f"Measured again: {each}. Later races draft by these costs."

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
                " specdemo bench” or “load”."
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

    can_bench = can_measure = False  # it would use up a visitor's share of the GPU

    def __init__(
        self, stream: Callable[[str, dict[str, Any]], Generator[dict[str, Any], None, None]]
    ):
        super().__init__()
        self.stream = stream

    def load(self, key: str, progress: Callable[[str, float | None], None]) -> Any:
        """Only the files: fetching them in the worker process would use up a visitor's share of the
        GPU.
        """
        from ..models.fetch import target_folder

        pair, _ = self.pair(key)
        if pair.engine is not None:
            return super().load(key, progress)
        target_folder(pair, progress)
        return key

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
