"""Bars as SVG: readable on a light and on a dark page. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, LABEL_WIDTH, BAR_HEIGHT, ROW_HEIGHT, TOP = 860, 390, 16, 26, 40
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-weight: 600 }
  .ours { fill: #1a7f37 } .limit { fill: #8c959f } .other { fill: #54aeff }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .ours { fill: #3fb950 } .limit { fill: #6e7681 } .other { fill: #388bfd }
  }
"""


class Bar(NamedTuple):
    label: str
    value: float
    kind: str  # ours, limit, other


def bars_svg(title: str, bars: Sequence[Bar]) -> str:
    """A horizontal bar for each value, on a linear scale from 0."""
    height = TOP + ROW_HEIGHT * len(bars) + 8
    most = max((bar.value for bar in bars), default=1.0)
    room = WIDTH - LABEL_WIDTH - 70
    rows = []
    for i, bar in enumerate(bars):
        y = TOP + ROW_HEIGHT * i
        width = max(1.0, room * bar.value / most)
        rows += [
            f'<text x="{LABEL_WIDTH - 8}" y="{y + 13}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect class="{bar.kind}" x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2"/>',
            f'<text x="{LABEL_WIDTH + width + 6:.1f}" y="{y + 13}">{bar.value:.3g}</text>',
        ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<text class="title" x="8" y="22">{escape(title)}</text>',
            *rows,
            "</svg>\n",
        ]
    )
