"""The pages of the rules, as they come with the package."""

from __future__ import annotations

import re
from importlib.resources import files

#: A link to a file beside the page, which a reader elsewhere could not follow.
_LOCAL_LINK = re.compile(r"\[([^\]]*)\]\((?!\w+://)[^)]*\)")


def rule_page(code: str) -> str:
    """The Markdown page of a rule, with the words of local links in the place of the links."""
    page = files("splitproof.pages") / f"{code}.md"
    return _LOCAL_LINK.sub(r"\1", page.read_text(encoding="utf-8"))
