"""SVG pictures of the benches: plain text, no fonts and nothing else is fetched."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path


def svg_text(x: float, y: float, words: str, *, style: str = "", anchor: str = "") -> str:
    """A line of text at a place."""
    marks = (f' class="{style}"' if style else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{marks}>{escape(words)}</text>'


def svg_document(width: int, height: int, label: str, style: str, body: Iterable[str]) -> str:
    """The whole picture; `label` is what a screen reader says."""
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{label}">'
    )
    return "\n".join([opening, f"<style>{style}</style>", *body, "</svg>\n"])


def write_svg(path: Path, picture: str) -> None:
    """Write the picture, in folders that are made for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(picture, encoding="utf-8")
