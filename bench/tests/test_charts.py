"""The charts: they follow from their figures, every text is readable, and nothing is fetched."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path

import pytest

from recollect_bench.charts import CHARTS, draw_docs

DOCS = Path(__file__).parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def test_the_committed_charts_follow_from_their_figures() -> None:
    drawn = draw_docs(DOCS)
    assert drawn.keys() == set(CHARTS)
    for chart, text in drawn.items():
        assert (DOCS / chart).read_text(encoding="utf-8") == text, f"run `just docs`: {chart}"


@pytest.mark.parametrize("chart", CHARTS)
def test_no_text_covers_another_or_leaves_the_chart(chart: str) -> None:
    root = ElementTree.parse(DOCS / chart).getroot()
    _, _, width, height = map(float, root.get("viewBox", "").split())
    boxes = [_box(text) for text in root.iter(f"{SVG}text")]
    assert len(boxes) > 8
    for left, top, right, bottom in boxes:
        assert left >= 0 and top >= 0 and right <= width and bottom <= height
    for one, other in combinations(boxes, 2):
        beside = one[2] <= other[0] or other[2] <= one[0]
        assert beside or one[3] <= other[1] or other[3] <= one[1], (one, other)


def _box(text: ElementTree.Element) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a text, about as wide as common fonts draw it."""
    style = text.get("style", "")
    found = re.search(r"([\d.]+)px", style)
    assert found is not None, style
    size = float(found[1])
    length = 0.52 * size * len("".join(text.itertext()).strip())
    moved = re.search(r"translate\(([\d.-]+) ([\d.-]+)\)", text.get("transform", ""))
    x, y = map(float, moved.groups() if moved else (text.get("x", ""), text.get("y", "")))
    if "rotate(-90" in text.get("transform", ""):
        return x - size, y - length, x, y
    start = {"middle": length / 2, "end": length}.get(
        (re.search(r"text-anchor: (\w+)", style) or ["", "start"])[1], 0.0
    )
    return x - start, y - 0.75 * size, x - start + length, y + 0.2 * size


def test_a_chart_fetches_nothing_has_no_date_and_is_small() -> None:
    for chart in CHARTS:
        drawn = (DOCS / chart).read_text(encoding="utf-8")
        assert len(drawn) < 60_000
        assert not re.search(r'(?:href|src)="(?!#)|url\((?!#)|dc:date', drawn)
