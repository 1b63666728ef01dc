"""What has no meaning here."""


class UnsupportedOp(ValueError):
    """An op, a parameter of one or a type of its operands without a meaning here; the message names
    it."""
