"""The last line of a bench: what to set on this machine. Ranges decide: nothing is taken for what noise may have made.

a method gains       where its whole range is above 1
another is taken     where its whole range is above that of the default, or the default does not gain at all
"""

from collections.abc import Sequence as Seq

from outdraft.analysis.lines import PLAIN
from outdraft.analysis.summary import ALL, DEFAULT, Cell
from outdraft.analysis.tables import FEWEST

_FLAGS = {"k": "-k", "verifier": "--verifier", "policy": "--policy", "threads": ""}
_ROLES = ("draft_model", "head", "datastore")


def advise(cells: Seq[Cell]) -> str:
    """One line; empty where there is nothing to compare: no method of ours, or none whose text is the target's."""
    whole = [cell for cell in cells if cell.group == ALL and cell.method != PLAIN and cell.num_agreeing is None]
    able = [cell for cell in whole if cell.lossless and cell.speedup is not None]
    if not able:
        return ""
    if min(min(cell.num_prompts, cell.num_rounds) for cell in able) < FEWEST:
        return f"no advice: take at least {FEWEST} prompts and {FEWEST} rounds"
    usual = next((cell for cell in able if cell.method == DEFAULT), None)
    best = max(able, key=lambda cell: _range(cell)[0])
    if usual is not None and _range(usual)[0] > 1 and _range(best)[0] <= _range(usual)[1]:
        return f"on this machine: {_told(usual)} plain; nothing to set"
    if _range(best)[0] > 1:
        if usual is None:
            return f"take {_told(best)} plain: {flags_of(best.method)}"
        if _range(best)[0] > _range(usual)[1]:
            return f"take {_told(best)} plain, the default had {_figure(usual)}: {flags_of(best.method)}"
        return f"on this machine: {_told(usual)} plain, and no method is surely faster than it; nothing to set"
    losing = usual or max(able, key=lambda cell: _range(cell)[1])
    if _range(losing)[1] < 1:
        return f"plain decoding is fastest here: {_told(losing)}: --drafter none"
    return f"no method is surely faster than plain decoding here (best: {_told(best)}): more prompts and rounds decide"


def flags_of(label: str) -> str:
    """What a row's label, "eagle k=5 width=3", is on the command line; the name alone where an option is a list."""
    name, *settings = label.split(" ")
    flags = [f"--drafter {name}"]
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or value.startswith(("[", "{")):
            return flags[0]
        if key in _ROLES:
            flags.append(f"--{key.replace('_', '-')} {value}")
        elif key.startswith("policy."):
            flags.append(f"--policy-options {key.removeprefix('policy.')}={value}")
        elif key in _FLAGS:
            flags += [f"{_FLAGS[key]} {value}"] * bool(_FLAGS[key])
        else:
            flags.append(f"--drafter-options {key}={value}")
    return " ".join(flags)


def _range(cell: Cell) -> tuple[float, float]:
    assert cell.speedup is not None
    return cell.speedup.low, cell.speedup.high


def _figure(cell: Cell) -> str:
    assert cell.speedup is not None
    return f"{cell.speedup.value:.2f}x"


def _told(cell: Cell) -> str:
    return f"{cell.method}{':' * (cell.method != DEFAULT)} {_figure(cell)}"
