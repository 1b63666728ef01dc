"""A proved program that is run again and again, on memories that last."""

from __future__ import annotations

from collections.abc import Mapping

from ..model import document
from ..model.cache import SlotState
from ..model.certificate import Certificate
from ..model.command import SetInput
from ..model.plan.lower import lower
from ..model.schedule import Schedule
from .hardware import THREADS, Hardware
from .parallel import Team
from .quant import Array, Bytes
from .queue import Crew
from .reference import CallbackFunction, World
from .runtime import Machine, RunResult
from .script import symbol_values
from .watch import NOBODY, Watcher
from .window import Window


class SessionError(ValueError):
    """A program that cannot be run so, or inputs that do not fit it; says which."""


class Session:
    """One program on its memories.

    ``buffers``: contents by name of buffer; what is not given is made (zeros in ``any`` buffers,
    made-up weights).  Sessions that are given the same array share it: a prompt's program and
    that of decoding share weights and KV cache.  The program must be one pass (``repeat`` 1); it
    has ended when :meth:`run` returns, so what a later run finds in the ``any`` buffers is what
    the proof calls their content at the start.  ``team``: threads that share large products;
    ``crew``: those of queues; whoever made them closes them (the session its own, by
    :meth:`close`).  ``states``: what banks hold, shared as their buffers are.  ``watcher``: is
    told of everything that starts and ends.  ``hardware``: devices that are GPUs.

    ``CertificateError`` if the certificate is not a proof of exactly this schedule.
    """

    def __init__(
        self,
        schedule: Schedule,
        certificate: Certificate,
        *,
        symbols: Mapping[str, int] | None = None,
        buffers: Mapping[str, Bytes | Window] | None = None,
        callbacks: Mapping[str, CallbackFunction] | None = None,
        team: Team | None = None,
        crew: Crew | None = None,
        states: dict[str, SlotState] | None = None,
        watcher: Watcher = NOBODY,
        hardware: Hardware = THREADS,
    ) -> None:
        certificate.require(document.digest(schedule))
        if schedule.repeat != 1:
            raise SessionError(f"{schedule.name}: repeat is {schedule.repeat}; 1 was due")
        self.schedule = schedule
        program = lower(schedule)
        self._inputs: dict[tuple[str, int], Array] = {}
        self._names = {c.tensor for c in program.program or () if isinstance(c, SetInput)}
        values = symbol_values(program, symbols or {})
        world = World(program, values, 0, {}, callbacks or {}, self._inputs)
        self._machine = Machine(
            world, buffers, team, crew=crew, states=states, watcher=watcher, hardware=hardware
        )

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """One pass.  Arrays have the shape of their tensor, innermost first; they are copied.

        Returns what each ``get_output`` read.  ``SessionError`` for an input that is missing or
        unknown; ``RunError`` names the command that failed.
        """
        if inputs.keys() != self._names:
            wrong = sorted(inputs.keys() ^ self._names)
            raise SessionError(
                f"{self.schedule.name}: inputs {', '.join(sorted(self._names))} were due; "
                f"missing or unknown: {', '.join(wrong)}"
            )
        self._inputs.clear()
        self._inputs.update({(name, 0): array for name, array in inputs.items()})
        self._machine.outputs.clear()
        self._machine.one_pass(0)
        self._machine.finish()
        return self._machine.outputs[-1]

    def close(self) -> None:
        """End the threads of queues, if there are any and nobody else gave them."""
        self._machine.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def result(self) -> RunResult:
        """The counters of all passes so far, and the outputs of the last."""
        return self._machine.result(self.schedule)
