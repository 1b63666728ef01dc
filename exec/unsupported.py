"""What has no meaning here."""


class UnsupportedOp(NotImplementedError):
    """An op (or a parameter of one) without a meaning here; the message names the node."""
