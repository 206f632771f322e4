"""The picture that a bench ends with: speed-ups with their ranges, a panel for all prompts and one for each group.

An SVG file, written as text, which every browser shows: nothing has to be installed. Data in: records and their cells;
data out: the file's text.
"""

from collections.abc import Sequence as Seq
from html import escape

from outdraft.analysis.lines import PLAIN
from outdraft.analysis.records import Records
from outdraft.analysis.summary import ALL, Cell
from outdraft.analysis.words import how_measured, what_measured, where_measured

# Okabe and Ito, 2002
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#5d4ea0")
BESIDE = 4  # groups beside "all prompts"; of more, none is shown by itself
WIDTH, ROW, HEAD, NAMES = 230, 26, 92, 190  # of a panel, of a method, above the panels, left of them


def picture(records: Records, cells: Seq[Cell]) -> str:
    """The whole file. A range that noise makes longer than twice the best speed-up is cut there."""
    methods = list(dict.fromkeys(cell.method for cell in cells if cell.method != PLAIN and cell.speedup is not None))
    groups = list(dict.fromkeys(cell.group for cell in cells if cell.group != ALL))
    shown = [ALL, *groups] if 1 < len(groups) <= BESIDE else [ALL]
    best = max((cell.speedup.value for cell in cells if cell.speedup is not None), default=1.0)
    most = min(2 * best, max((cell.speedup.high for cell in cells if cell.speedup is not None), default=1.0)) * 1.05
    width, height = NAMES + len(shown) * WIDTH + 20, HEAD + len(methods) * ROW + 50
    parts = [
        _text(20, 24 + 18 * i, line, size=15 - 3 * bool(i), bold=not i)
        for i, line in enumerate((what_measured(records), how_measured(records, cells), where_measured(records)))
    ]
    parts += [_text(NAMES - 10, HEAD + 20 + ROW * i, name, anchor="end") for i, name in enumerate(methods)]
    for place, group in enumerate(shown):
        parts += _panel([cell for cell in cells if cell.group == group], methods, group, NAMES + place * WIDTH, most)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _panel(cells: Seq[Cell], methods: Seq[str], group: str, left: float, most: float) -> list[str]:
    """One group: a dot for each method's speed-up, a line for its range, and a dashed line at plain decoding."""
    bottom, scale = HEAD + len(methods) * ROW + 8, (WIDTH - 60) / most
    parts = [_text(left, HEAD - 4, "all prompts" if group == ALL else group, bold=True)]
    for tick in range(int(most) + 1):
        x = left + tick * scale
        parts.append(_line(x, HEAD + 4, x, bottom, "#999999" if tick == 1 else "#dddddd", dashed=tick == 1))
        parts.append(_text(x, bottom + 16, f"{tick}x", size=11, anchor="middle"))
    for cell in cells:
        if cell.method not in methods or cell.speedup is None:
            continue
        i, found = methods.index(cell.method), cell.speedup
        y, colour = HEAD + 16 + ROW * i, PALETTE[i % len(PALETTE)]
        low, middle, high = (left + min(one, most) * scale for one in (found.low, found.value, found.high))
        parts.append(_line(low, y, high, y, colour))
        parts.append(f'<circle cx="{middle:.1f}" cy="{y}" r="4.5" fill="{colour}"/>')
        parts.append(_text(high + 8, y + 4, f"{found.value:.2f}x"))
    return parts


def _text(x: float, y: float, text: str, *, size: int = 12, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="bold"' * bold
    return f'<text x="{x:.1f}" y="{y}" font-size="{size}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="4 3"' * dashed
    return f'<line x1="{x1:.1f}" y1="{y1}" x2="{x2:.1f}" y2="{y2}" stroke="{colour}" stroke-width="2"{dash}/>'
