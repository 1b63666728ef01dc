"""Prove the bounds of every CUDA kernel as a GPU runs it, and print the faults as JSON.

To be run without Numba's simulator, in which a block has fewer threads.  Of the tiles by expert,
which differ from one type to the next as the tiles without experts do, those of q8_0 alone are
proved, unless ``SPLITPROOF_KERNELS=all``.
"""

from __future__ import annotations

import json
import os
import sys

from splitproof.exec.cuda import index
from splitproof.exec.cuda.catalog import kernels
from splitproof.exec.cuda.packing import PACKINGS
from splitproof.exec.cuda.target import SIMULATED
from splitproof.exec.cuda.tiles import TILE_THREADS
from splitproof.verify.kernel import Known, check_bounds
from splitproof.verify.kernel_lemma import check_lemmas, check_tile


def main() -> None:
    known, catalog = Known(), kernels()
    left_out = [f"mul_mat_id {kind} in tiles" for kind in PACKINGS if kind != "q8_0"]
    if os.environ.get("SPLITPROOF_KERNELS") == "all":
        left_out = []
    found = {
        name: check_bounds(name, kernel, known)
        for name, kernel in catalog.items() if name not in left_out
    }  # fmt: skip
    lemmas = check_lemmas(index.row_place, index.element_place, index.group_place)
    lemmas += check_tile(index.tile_place, TILE_THREADS)
    said = {
        "simulated": SIMULATED,
        "lemmas": lemmas,
        "left_out": left_out,
        "faults": {name: bounds.faults for name, bounds in found.items()},
        "writes": {name: bounds.accesses for name, bounds in found.items()},
    }
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
