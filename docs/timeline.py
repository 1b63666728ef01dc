"""Draws docs/pf001.svg: the counterexample of PF001 as a picture.  Run: python docs/timeline.py

One column per queue, time downwards.  The picture is made from the report, so it shows what the
checker found, not what somebody believed it would find.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import splitproof
from splitproof.model.counterexample import Counterexample
from splitproof.model.schedule import Schedule
from splitproof.timeline import READER, WRITER, Row, queues_of, rows

DOCS = Path(__file__).parent
COLUMN, ROW, LEFT, TOP, BAR = 190, 34, 24, 64, 158
FILL = {READER: "#fde2e1", WRITER: "#fdf0cf", "": "#eef1f5"}
EDGE = {READER: "#b3261e", WRITER: "#946200", "": "#8a94a3"}


def svg(schedule: Schedule, example: Counterexample) -> str:
    """The first pass of the counterexample as an SVG document."""
    moments = [row for row in rows(schedule, example) if row.iteration == 0]
    queues = queues_of(schedule, moments)
    width, height = 2 * LEFT + COLUMN * len(queues), TOP + ROW * len(moments) + 70
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for index, queue in enumerate(queues):
        x = LEFT + COLUMN * index + BAR / 2
        parts.append(text(x, 30, queue, bold=True))
        parts.append(
            f'<line x1="{x}" y1="44" x2="{x}" y2="{height - 62}" stroke="#d5dae1" '
            'stroke-dasharray="3 4"/>'
        )
    for index, row in enumerate(moments):
        parts += bar(row, queues.index(row.queue), index)
    parts.append(missing(moments, queues))
    parts.append(text(LEFT, height - 34, "- -  missing: the write must end", left=True))
    parts.append(text(LEFT, height - 16, "       before the read starts", left=True))
    return "\n".join([*parts, "</svg>", ""])


def bar(row: Row, column: int, index: int) -> list[str]:
    x, y = LEFT + COLUMN * column, TOP + ROW * index
    label = row.text.replace("┌ ", "").replace("└ ", "")
    return [
        f'<rect x="{x}" y="{y}" width="{BAR}" height="{ROW - 8}" rx="5" '
        f'fill="{FILL[row.role]}" stroke="{EDGE[row.role]}"/>',
        text(x + BAR / 2, y + 17, label, bold=bool(row.role)),
    ]


def missing(moments: list[Row], queues: list[str]) -> str:
    """The edge that nothing in the schedule gives: from the end of the write to the read."""
    reader = next(i for i, row in enumerate(moments) if row.role == READER)
    writer = next(i for i, row in enumerate(moments) if row.role == WRITER)
    columns = queues.index(moments[writer].queue), queues.index(moments[reader].queue)
    x1, x2 = (LEFT + COLUMN * column for column in columns)
    y1, y2 = (TOP + ROW * i + (ROW - 8) / 2 for i in (writer, reader))
    return (
        f'<path d="M {x1 + BAR} {y1} C {x1 + BAR + 30} {y1}, {x2 - 30} {y2}, {x2} {y2}" '
        'fill="none" stroke="#b3261e" stroke-width="1.6" stroke-dasharray="5 4"/>'
    )


def text(x: float, y: float, words: str, *, bold: bool = False, left: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    anchor = "start" if left else "middle"
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'


def picture() -> str:
    """The picture of docs/examples/pf001.json."""
    schedule = splitproof.load(DOCS / "examples" / "pf001.json")
    example = splitproof.check(schedule).findings[0].counterexample
    assert example is not None
    return svg(schedule, example)


if __name__ == "__main__":
    (DOCS / "pf001.svg").write_text(picture(), encoding="utf-8")
