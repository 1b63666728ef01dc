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

from .model.version import VERSION

__version__ = VERSION

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
    "plan": "splitproof.model.plan.planner",
    "plan_regimes": "splitproof.model.plan.planner",
    "PlanError": "splitproof.model.plan.error",
    "PlanOptions": "splitproof.model.plan.options",
    "import_dump": "splitproof.api",
    "import_log": "splitproof.api",
    "programs": "splitproof.api",
    "check": "splitproof.api",
    "minimize": "splitproof.api",
    "contracts": "splitproof.api",
    "run": "splitproof.api",
    "replay": "splitproof.api",
    "explain": "splitproof.api",
    "register_op": "splitproof.exec.user_ops",
}

__all__ = sorted([*_HOME, "__version__"])

if TYPE_CHECKING:  # what a type checker sees in the place of __getattr__
    from .api import check as check
    from .api import contracts as contracts
    from .api import explain as explain
    from .api import import_dump as import_dump
    from .api import import_log as import_log
    from .api import minimize as minimize
    from .api import programs as programs
    from .api import replay as replay
    from .api import run as run
    from .exec.user_ops import register_op as register_op
    from .model.certificate import Certificate as Certificate
    from .model.certificate import CertificateError as CertificateError
    from .model.certificate import certify as certify
    from .model.document import DocumentError as DocumentError
    from .model.document import digest as digest
    from .model.document import dumps as dumps
    from .model.document import load as load
    from .model.document import loads as loads
    from .model.document import schema as schema
    from .model.plan.lower import lower as lower
    from .model.report import Report as Report
    from .model.report import Verdict as Verdict
    from .model.schedule import Schedule as Schedule


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
