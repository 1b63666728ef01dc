"""The metadata of a model, with errors that name the key."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite

from ..read.gguf import ModelError, ModelFile, Value

_REQUIRED = object()


class Keys:
    """The keys under ``ARCHITECTURE.``; each getter takes a default for a key that may lack."""

    def __init__(self, model: ModelFile) -> None:
        self.model = model

    def _find(self, key: str, default: object) -> Value | None:
        full = f"{self.model.architecture}.{key}"
        value = self.model.keys.get(full)
        if value is None and default is _REQUIRED:
            raise ModelError(f"{self.model.path}: the key {full} is missing")
        # One number per layer, all the same, is as good as one number.
        if isinstance(value, list) and value and all(v == value[0] for v in value):
            first: Value = value[0]
            return first
        return value

    def _wrong(self, key: str, value: object, due: str) -> ModelError:
        full = f"{self.model.architecture}.{key}"
        return ModelError(f"{self.model.path}: the key {full} is {value!r}; {due} was due")

    def size(self, key: str, default: object = _REQUIRED, least: int = 1) -> int:
        """An integer, ``least`` or more."""
        value = self._find(key, default)
        if value is None:
            assert isinstance(default, int)
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._wrong(key, value, f"an integer from {least} on")
        return value

    def number(self, key: str, default: object = _REQUIRED, above: float = -inf) -> float:
        """A finite number above ``above``."""
        value = self._find(key, default)
        if value is None:
            assert isinstance(default, int | float)
            return float(default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, value, "a number")
        if not isfinite(value) or value <= above:
            where = f" above {above:g}" if isfinite(above) else ""
            raise self._wrong(key, value, f"a finite number{where}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._find(key, default)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def choice(self, key: str, known: Sequence[str], default: str) -> str:
        """One of the words that this program knows."""
        value = self._find(key, default)
        if value is None:
            return default
        if value not in known:
            raise self._wrong(key, value, f"one of {', '.join(known)}")
        return str(value)
