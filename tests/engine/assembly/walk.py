"""The walk from `LLM()` to a running loop, counted: how many modules one enters, and how often one comes back.

    python tests/engine/assembly/walk.py [MODEL]        prints the walk

What counts, so that anybody can repeat it: `LLM()` in the thread that calls it, and then the engine's own thread until
it enters the first step (`Engine.step`). A request of three ids sets that thread going; what its caller does for it is
counted by `whole` alone. Every call is seen. Modules of the layer of the engine and of those above it are entered;
whatever lies below is a leaf, with all that it calls, and so are the scheduler and what checks requests, which know no
part of the engine. Control *comes back* when a call from one entered module into another returns. The strict count has
no leaves: every module of the package counts, and every return.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import outdraft

ROOT = Path(outdraft.__file__).parent
UPPER = ("engine", "training", "bench", "cli", "tutorial", "server")
LEAVES = ("engine.scheduler", "engine.requests")


@dataclass
class Walk:
    """`modules` in the order in which they are entered."""

    modules: list[str] = field(default_factory=list)
    num_returns: int = 0
    crossings: list[str] = field(default_factory=list)


def record(model: str, *, whole: bool = False, strict: bool = False, **words: str) -> Walk:
    """Follow `LLM(model, **words)` until the first step; `whole`: and the first request's caller too."""
    from outdraft import LLM, SamplingParams

    walk, over = Walk(), threading.Event()

    def follow() -> Callable[..., None]:
        stack: list[str | None] = []  # of this thread: the module of each open call, None where it does not count

        def see(frame, event, argument) -> None:
            if over.is_set() or event not in ("call", "return"):
                return
            path = frame.f_code.co_filename
            if not path.startswith(str(ROOT)):
                return
            module = Path(path).relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            shown = [one for one in stack if one is not None]
            if event == "call":
                if module == "engine.loop" and frame.f_code.co_name == "step":
                    over.set()
                    return
                is_leaf = None in stack[stack.index(shown[0]) :] if shown else False
                upper = module.partition(".")[0] in UPPER and not module.startswith(LEAVES)
                counts = strict or (upper and not is_leaf)
                stack.append(module if counts else None)
                if counts and module not in walk.modules:
                    walk.modules.append(module)
                if counts and shown and shown[-1] != module:
                    walk.crossings.append(f"{shown[-1]}:{frame.f_back.f_lineno} -> {module}.{frame.f_code.co_qualname}")
            elif stack:
                left = stack.pop()
                back = next((one for one in reversed(stack) if one is not None), None)
                walk.num_returns += left is not None and back is not None and back != left

        return see

    def per_thread(frame, event, argument) -> None:
        see = follow()
        sys.setprofile(see)
        see(frame, event, argument)

    threading.setprofile(per_thread)
    try:
        sys.setprofile(follow())
        llm = LLM(model, **words)
        sys.setprofile(follow() if whole else None)
        llm.generate({"prompt_token_ids": [1, 2, 3]}, SamplingParams(max_tokens=2))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert over.is_set(), "no step was reached"
    return walk


if __name__ == "__main__":
    model = sys.argv[1] if len(sys.argv) > 1 else "zoo:target"
    record(model)  # what is imported late
    for label, ways in (("engine", {}), ("whole", {"whole": True}), ("strict", {"whole": True, "strict": True})):
        walk = record(model, **ways)
        sys.stdout.write(f"{label}: {len(walk.modules)} modules, {walk.num_returns} returns\n")
        if label != "strict":
            sys.stdout.write("\n".join(["  " + one for one in walk.crossings]) + "\n")
