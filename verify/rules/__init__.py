"""The rules that a schedule is held against."""

from .table import PRECEDENCE, RULES, precedence

__all__ = ["PRECEDENCE", "RULES", "precedence"]
