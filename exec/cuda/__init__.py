"""Kernels for CUDA devices, and for the simulator that Numba has of them."""
