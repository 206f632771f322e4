"""Heads on an inflated target: a drafter whose weights belong to the small one gets them inflated alike.

Data in: the line-up's rival, the small target, its size on the bench; data out: the rival's engine.
"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from outdraft.bench.lineup import Rival
from outdraft.bench.trial import join
from outdraft.core.registry import find, make_options
from outdraft.engine.llm import LLM
from outdraft.testing.inflate_head import inflate_head, is_head
from outdraft.weights.hub import resolve


def join_inflated(plain: LLM, rival: Rival, target: Path, *, width: int, depth: int) -> LLM:
    """`bench.trial.join` where `plain` is `target` inflated; the record names the weights by what they were made of."""
    model = getattr(make_options(find("drafter", rival.name), rival.options), "model", "")
    if not model or not is_head(resolve(model)):
        return join(plain, rival)
    with TemporaryDirectory() as above:
        inflate_head(resolve(model), target, Path(above), width=width, depth=depth)
        made = join(plain, replace(rival, options={**rival.options, "model": above}))
    made.config["drafter"]["model"] = model
    return made
