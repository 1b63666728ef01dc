"""splitproof: says whether a schedule over several devices is right, and runs what was proved.

    import splitproof

    report = splitproof.check("schedule.json")
    print(report.verdict)

Every name here is loaded when it is first used, so ``import splitproof`` costs next to nothing:
Z3 comes with the first ``check``, Numba with the first ``run``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Public name → module that has it.
_HOME = {
    "load": "splitproof.model.document",
    "loads": "splitproof.model.document",
    "dumps": "splitproof.model.document",
    "schema": "splitproof.model.document",
    "digest": "splitproof.model.document",
    "DocumentError": "splitproof.model.document",
    "Schedule": "splitproof.model.schedule",
    "Report": "splitproof.model.report",
    "Verdict": "splitproof.model.report",
    "Certificate": "splitproof.model.certificate",
    "CertificateError": "splitproof.model.certificate",
    "certify": "splitproof.model.certificate",
    "lower": "splitproof.model.plan.lower",
    "import_dump": "splitproof.api",
    "check": "splitproof.api",
    "run": "splitproof.api",
    "replay": "splitproof.api",
    "explain": "splitproof.api",
}

__all__ = sorted([*_HOME, "__version__"])

if TYPE_CHECKING:
    from .api import check, explain, import_dump, replay, run
    from .model.certificate import Certificate, CertificateError, certify
    from .model.document import DocumentError, digest, dumps, load, loads, schema
    from .model.plan.lower import lower
    from .model.report import Report, Verdict
    from .model.schedule import Schedule


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
