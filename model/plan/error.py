"""What is said when no plan exists."""

from __future__ import annotations


class PlanError(ValueError):
    """A graph that cannot be planned, or an option that does not fit it.

    ``tensor``, ``buffer``, ``op``: what it is about, where one is.  ggml's scheduler aborts the
    process in the cases that have a tensor.
    """

    def __init__(
        self,
        message: str,
        *,
        tensor: str | None = None,
        buffer: str | None = None,
        op: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.tensor = tensor
        self.buffer = buffer
        self.op = op
