"""Numbers, sizes and lists in words."""

from __future__ import annotations

from collections.abc import Iterable


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 pass``, ``2 passes``: the noun in the number's form, thousands apart."""
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith("s") else "s"
    return f"{number:,} {plural or noun + ending}"


def size_text(number: int) -> str:
    """Bytes with a unit that keeps three digits: ``17 KiB`` (exact below 10 KiB)."""
    if number < 10 * 1024:
        return f"{number:,} B"
    value = float(number)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024 or unit == "GiB":
            break
    return f"{value:.1f} {unit}" if value < 100 else f"{value:,.0f} {unit}"


def listing(values: Iterable[object], most: int = 12) -> str:
    """Values in brackets, the first ones if there are many."""
    items = [str(value) for value in values]
    more = ", …" if len(items) > most else ""
    return f"[{', '.join(items[:most])}{more}]"
