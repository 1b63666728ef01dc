"""A second opinion: cvc5 reads the text that Z3 read."""

from __future__ import annotations

import importlib
from typing import Any

from .outline import Query, Second
from .smt import smt_text

#: milliseconds for one question
LIMIT = 20_000


def cvc5_opinion() -> Second:
    """A function that asks cvc5 whether a query is satisfiable; ``None`` if it gave up.

    ``ImportError`` says how to install cvc5 if it is missing.
    """
    try:
        cvc5: Any = importlib.import_module("cvc5")
    except ImportError:
        raise ImportError("a recheck needs cvc5: install splitproof[recheck]") from None

    def ask(query: Query) -> bool | None:
        text = smt_text(query.assertions)
        # The script's own logic and options come first; a finite model is looked for where there
        # should be one, for else cvc5 may go on forever.
        terms = cvc5.TermManager()
        solver = cvc5.Solver(terms)
        solver.setOption("tlimit-per", str(LIMIT))
        solver.setOption("seed", "0")
        if query.expected:
            solver.setOption("finite-model-find", "true")
        parser = cvc5.InputParser(solver)
        parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, query.label)
        answer = ""
        while True:
            command = parser.nextCommand()
            if command.isNull():
                break
            answer = str(command.invoke(solver, parser.getSymbolManager())).strip() or answer
        return {"sat": True, "unsat": False}.get(answer)

    return ask
