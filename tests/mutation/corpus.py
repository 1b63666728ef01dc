"""The proved schedules that are mutated: examples, and the repaired twins of the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from splitproof.model.document import load, to_dict
from splitproof.model.plan.lower import lower

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "docs" / "examples"
RULES = ROOT / "tests" / "rules"


def corpus() -> dict[str, dict[str, Any]]:
    """Name → document at the program level."""
    paths = {
        f"examples/{name}": EXAMPLES / f"{name}.json"
        for name in ("pf001-repaired", "bk001-repaired", "moe-layer")
    }
    for folder in sorted(RULES.glob("[A-Z][A-Z][0-9]*")):
        paths[f"rules/{folder.name}"] = folder / "repaired.json"
    extra = json.loads((RULES / "extra" / "expect.json").read_text(encoding="utf-8"))
    for name, due in extra.items():
        if due["verdict"] == "proved":
            paths[f"extra/{name}"] = RULES / "extra" / f"{name}.json"
    return {name: to_dict(lower(load(path))) for name, path in paths.items()}
