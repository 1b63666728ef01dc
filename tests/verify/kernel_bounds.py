"""Prove the bounds of every CUDA kernel as a GPU runs it, and print the faults as JSON.

To be run without Numba's simulator, in which a block has fewer threads.
"""

from __future__ import annotations

import json
import sys

from splitproof.exec.cuda import index
from splitproof.exec.cuda.catalog import kernels
from splitproof.exec.cuda.target import SIMULATED
from splitproof.verify.kernel import check_bounds
from splitproof.verify.kernel_lemma import check_lemmas


def main() -> None:
    found = {name: check_bounds(name, kernel) for name, kernel in kernels().items()}
    lemmas = check_lemmas(index.row_place, index.element_place, index.group_place)
    said = {
        "simulated": SIMULATED,
        "lemmas": lemmas,
        "faults": {name: bounds.faults for name, bounds in found.items()},
        "writes": {name: bounds.accesses for name, bounds in found.items()},
    }
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
