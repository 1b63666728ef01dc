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
        # Looking for finite models settles most questions that have one, and some that have none.
        for finite in (query.expected, not query.expected):
            answer = _answer(cvc5, text, query.label, finite)
            if answer is not None:
                return answer
        return None

    return ask


def _answer(cvc5: Any, text: str, label: str, finite: bool) -> bool | None:
    solver = cvc5.Solver(cvc5.TermManager())
    solver.setOption("tlimit-per", str(LIMIT))
    solver.setOption("seed", "0")
    solver.setOption("finite-model-find", "true" if finite else "false")
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, label)
    answer = ""
    while not (command := parser.nextCommand()).isNull():
        answer = str(command.invoke(solver, parser.getSymbolManager())).strip() or answer
    return {"sat": True, "unsat": False}.get(answer)
