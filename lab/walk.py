"""How far a call walks through the house: `python -m lab.walk`, the files that `LLM(...)` and `generate` enter.

    files     files of outdraft of which some function was entered; their lines, blank ones and comments included
    returns   calls that go from one file into another that was entered before: a loop over layers counts each of them
    ways      the same, each function that calls and each that is called once: what a reader has to look up again
    calls     Python calls of our own functions

What runs while a module is imported is not counted, wherever that happens.
"""

import argparse
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import outdraft
from outdraft.options.params import SamplingParams

HOME = str(Path(outdraft.__file__).parent) + "/"
PROMPT = "It was late when"
DRAFTERS = ("none", "ngram", "eagle3", "default")


@dataclass(slots=True)
class Walk:
    """What was entered while a call ran."""

    files: list[str] = field(default_factory=list)  # in the order of their first call, below src/outdraft
    num_returns: int = 0
    ways: set[tuple[CodeType | None, CodeType]] = field(default_factory=set)
    num_calls: int = 0

    @property
    def num_lines(self) -> int:
        """Of all these files."""
        return sum(len(Path(HOME, name).read_text(encoding="utf-8").splitlines()) for name in self.files)


def walked(call: Callable[[], Any], within: str = "") -> tuple[Any, Walk]:
    """The call's result, and what it entered. `within`: only while a function of this name runs."""
    walk, seen, depth = Walk(), set[str](), 0 if within else 1

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth
        code = frame.f_code
        if within and code.co_name == within and event in ("call", "return"):
            depth += 1 if event == "call" else -1
        if event != "call" or not depth or not _is_ours(code.co_filename) or _is_imported(frame):
            return
        walk.num_calls += 1
        name, caller = code.co_filename, frame.f_back
        while caller is not None and not _is_ours(caller.f_code.co_filename):
            caller = caller.f_back
        if name not in seen:
            seen.add(name)
            walk.files.append(name.removeprefix(HOME))
        elif caller is None or caller.f_code.co_filename != name:
            walk.num_returns += 1
            walk.ways.add((caller and caller.f_code, code))

    sys.setprofile(note)
    try:
        return call(), walk
    finally:
        sys.setprofile(None)


def _is_ours(name: str) -> bool:
    return name.startswith(HOME)


def _is_imported(frame: FrameType) -> bool:
    """Whether this is a module, a class, or what one of these calls while it is made."""
    found: FrameType | None = frame
    while found is not None:
        if found.f_code.co_name == "<module>" and _is_ours(found.f_code.co_filename):
            return True
        found = found.f_back
    return frame.f_code.co_flags & 2 == 0  # a body that is no function: CO_NEWLOCALS is not set


def measure(drafter: str, within: str = "", num_tokens: int = 24) -> dict[str, Walk]:
    """Building an LLM, and its first text."""
    from outdraft import LLM

    words: dict[str, Any] = {} if drafter == "default" else {"drafter": drafter}
    gc.collect()  # what earlier engines left ends now, and not in the walk
    llm, built = walked(lambda: LLM("zoo:target", **words), within)
    with llm:
        _, written = walked(lambda: _with_its_thread(llm, num_tokens), within)
    return {"LLM()": built, "generate": written}


def _with_its_thread(llm: Any, num_tokens: int) -> None:
    """`generate`; the engine's thread begins with its first text, and is watched too."""
    from threading import setprofile

    setprofile(sys.getprofile())
    try:
        llm.generate(PROMPT, SamplingParams(max_tokens=num_tokens))
    finally:
        setprofile(None)


def main(words: list[str] | None = None) -> int:
    """Print a line for each drafter and call."""
    parser = argparse.ArgumentParser(prog="python -m lab.walk", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--drafter", choices=DRAFTERS, action="append", help="may be repeated; all without")
    parser.add_argument("--within", default="", help="only while a function of this name runs, as make_engine")
    parser.add_argument("--files", action="store_true", help="name the files")
    options = parser.parse_args(words)
    lines = ["| drafter | call | files | lines | returns | ways | calls |", f"|{' --- |' * 7}"]
    for drafter in options.drafter or DRAFTERS:
        for name, walk in measure(drafter, options.within).items():
            cells = (drafter, name, len(walk.files), walk.num_lines, walk.num_returns, len(walk.ways), walk.num_calls)
            lines.append(f"| {' | '.join(map(str, cells))} |")
            lines += [f"    {one}" for one in walk.files if options.files]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
