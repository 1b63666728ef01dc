"""Run a model: a prompt, then one token after another, over a KV cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from weakref import finalize

import numpy as np

from ..model.certificate import Certificate
from ..model.decoder.architectures import Built, build
from ..model.decoder.net import Batch
from ..model.decoder.site import Setting
from ..model.plan.planner import plan
from ..model.read.gguf import ModelFile
from ..model.schedule import Schedule
from .hardware import THREADS, Hardware
from .parallel import Team
from .programs import COMPACT_FROM, Plan, Policy, program
from .quant import Array, Bytes
from .queue import Crew
from .session import Session
from .watch import NOBODY, Watcher
from .weights import SharedBanks, model_buffers
from .window import Window

Prove = Callable[[Schedule], Certificate]

LOGITS = "result_output"
#: The cache grows by so many cells at a time, and attention looks at a multiple of it.
CELLS = 256
#: The most tokens of a prompt in one pass.
MOST_TOKENS = 512


class GenerateError(ValueError):
    """Tokens that the model has not, or more than its context holds."""


@dataclass(slots=True)
class Timing:
    """Seconds per phase: ``build``, ``prove``, ``load``, ``prompt`` and ``decode``."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start


class Generator:
    """A model with its memories.

    ``prove`` checks a schedule; each program is run only with its certificate.  ``context``: the
    most tokens of a request, ``ubatch`` of one pass.  ``setting``: devices, and where weights and
    cache lie; ``plan``: which device computes what; ``policy``: expert cache and prefetch.
    ``watch``: beginnings of names of tensors whose values are kept in ``watched``.  ``threads``:
    of large products; :meth:`close` stops them and those of the queues.  ``compact_from``: bytes
    of results in one pass from which on these share bytes where they are dead.  ``watcher``: is
    told of everything that starts and ends in a run.  ``hardware``: devices that are GPUs.
    """

    def __init__(
        self,
        model: ModelFile,
        prove: Prove,
        *,
        context: int,
        setting: Setting | None = None,
        plan: Plan = plan,
        policy: Policy | None = None,
        ubatch: int = MOST_TOKENS,
        watch: Collection[str] = (),
        threads: int = 1,
        compact_from: int = COMPACT_FROM,
        watcher: Watcher = NOBODY,
        hardware: Hardware = THREADS,
    ) -> None:
        self.model, self.prove, self.plan = model, prove, plan
        self.setting, self.watch = setting or Setting(), tuple(watch)
        self.context, self.compact_from = context, compact_from
        self.policy, self.ubatch, self.watcher = policy or Policy(), ubatch, watcher
        self.team, self.crew = Team(threads), Crew()
        #: for those who do not close: threads hold no generator, so that it can be collected
        finalize(self, _stop, self.crew, self.team).atexit = False
        self.capacity = -(-context // CELLS) * CELLS
        self.position = 0
        self.timing = Timing()
        self.watched: dict[str, list[Array]] = {}
        self._programs: dict[Batch, tuple[Built, Session]] = {}
        #: what was asked for and has no effect, by batch
        self.idle: dict[Batch, tuple[str, ...]] = {}
        self._buffers: dict[str, Bytes | Window] | None = None
        self.hardware = hardware
        self._banks = SharedBanks(self.hardware)

    # -- programs ---------------------------------------------------------------------------

    def program(self, batch: Batch) -> tuple[Built, Session]:
        """The proved program for a batch, made when it is first asked for."""
        if batch not in self._programs:
            with self.timing.phase("build"):
                built = build(self.model, batch, self.setting, self.watch)
                made = program(
                    built.schedule, self.policy, batch.tokens, plan=self.plan,
                    compact_from=self.compact_from,
                )  # fmt: skip
            self.idle[batch] = made.idle
            with self.timing.phase("prove"):
                certificate = self.prove(made.schedule)
            with self.timing.phase("load"):
                if self._buffers is None:
                    graph = built.schedule.graph
                    self._buffers = model_buffers(self.model, graph, built.loaded, self.hardware)
                banks, states = self._banks.of(made.schedule)
                session = Session(
                    made.schedule, certificate, buffers={**self._buffers, **banks},
                    team=self.team, crew=self.crew, states=states, watcher=self.watcher,
                    hardware=self.hardware,
                )  # fmt: skip
            self._programs[batch] = built, session
        return self._programs[batch]

    @property
    def sessions(self) -> tuple[Session, ...]:
        return tuple(session for _, session in self._programs.values())

    # -- tokens -----------------------------------------------------------------------------

    def reset(self) -> None:
        """Begin a new request: nothing of the cache is seen any more."""
        self.position = 0
        self.watched = {}

    def close(self) -> None:
        """Stop the threads."""
        _stop(self.crew, self.team)

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def feed(self, tokens: Sequence[int], *, all_logits: bool = False) -> Array:
        """Take tokens in; logits ``[1, vocabulary]`` after the last, or after each of them.

        ``GenerateError`` if they do not fit into the context, or are no tokens.
        """
        if not tokens:
            raise GenerateError("no tokens: at least one was due")
        if self.position + len(tokens) > self.context:
            raise GenerateError(
                f"{self.position + len(tokens)} tokens; the context holds {self.context}"
            )
        phase = "prompt" if self.position == 0 else "decode"
        rows = []
        for start in range(0, len(tokens), self.ubatch):
            part = tokens[start : start + self.ubatch]
            rows.append(self._pass(part, all_logits, phase))
        return np.concatenate(rows) if all_logits else rows[-1]

    def _pass(self, tokens: Sequence[int], all_logits: bool, phase: str) -> Array:
        count, end = len(tokens), self.position + len(tokens)
        batch = Batch(count, count if all_logits else 1, -(-end // CELLS) * CELLS, self.capacity)
        built, session = self.program(batch)
        with self.timing.phase(phase):
            outputs = session.run(self._inputs(built, tokens))
        self.position = end
        for name, value in outputs.items():
            if name != LOGITS:
                self.watched.setdefault(name, []).append(value)
        logits: Array = outputs[LOGITS][:, :, 0, 0].T
        return logits

    def _inputs(self, built: Built, tokens: Sequence[int]) -> dict[str, Array]:
        """Arrays of the shape of their tensor, innermost first."""
        batch, graph = built.batch, built.schedule.graph
        places = np.arange(self.position, self.position + batch.tokens)
        made: dict[str, Callable[[int], Array]] = {
            "inp_tokens": lambda _: self._checked(built, tokens),
            "inp_pos": lambda _: places,
            "out_ids": lambda n: np.arange(batch.tokens - n, batch.tokens),
            "attn_inp_k_idxs": lambda _: places,
            # The values' cache has a row per number: number j of cell c lies at j · capacity + c.
            "attn_inp_v_idxs": lambda n: (
                places[:, None] + np.arange(n // batch.tokens) * batch.capacity
            ).reshape(-1),
            "attn_inp_kq_mask": lambda _: _mask(places, batch.cells, 0),
            "attn_inp_kq_mask_swa": lambda _: _mask(places, batch.cells, built.window),
        }
        return {
            tensor.name: made[tensor.name](tensor.shape[0].value({}))
            for tensor in graph.tensors
            if tensor.input
        }

    def _checked(self, built: Built, tokens: Sequence[int]) -> Array:
        values = built.schedule.graph.tensor("inp_tokens").values
        assert values is not None
        for token in tokens:
            if not values[0] <= token < values[1]:
                raise GenerateError(
                    f"token {token}: the model has tokens {values[0]} to {values[1] - 1}"
                )
        return np.array(tokens, np.int64)


def _stop(crew: Crew, team: Team) -> None:
    crew.close()
    team.close()


def _mask(places: Array, cells: int, window: int) -> Array:
    """0 where a token sees a cell, else minus infinity: ``[cells, tokens]``.

    It sees itself and what came before; with a window of ``w`` only the last w of these.
    """
    behind = places[None, :] - np.arange(cells)[:, None]
    seen = (behind >= 0) & ((behind < window) if window else True)
    return np.where(seen, np.float32(0), np.float32(-np.inf))


@dataclass(frozen=True, slots=True)
class Generation:
    """``tokens``: those that were decoded.  ``logits``: a row for each position asked for.
    ``steps``: how many of the tokens were fed again."""

    tokens: tuple[int, ...]
    logits: Array
    steps: int


def greedy(
    generator: Generator,
    prompt: Sequence[int],
    count: int,
    *,
    all_logits: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Generation:
    """Decode ``count`` tokens after a prompt, each the one with the highest logit.

    ``all_logits``: of each prompt position and after each decoded token; else of the last prompt
    position and after each decoded token but the last, which then is not fed.  ``progress`` is
    called with (decoded, count).
    """
    generator.reset()
    rows = generator.feed(prompt, all_logits=all_logits)
    found, logits = [], [rows]
    for index in range(count):
        token = int(np.argmax(rows[-1]))
        found.append(token)
        if progress is not None:
            progress(index + 1, count)
        if all_logits or index < count - 1:
            rows = generator.feed([token])
            logits.append(rows)
    return Generation(tuple(found), np.concatenate(logits), len(logits) - 1)
