"""Settings that must stand before the first import of Numba."""

from __future__ import annotations

import os

# Kernels for CUDA run in Numba's simulator, unless the tests of a real GPU ask otherwise.
os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")
# On a GPU each launch of a few blocks would be a warning, and so an error.
os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
