"""Answers of the zoo's target behind forms that are much alike: a domain of its own."""

from outdraft import LLM, SamplingParams
from outdraft.engine.callers.result import Result

BEGINNINGS = ["The rain", "A letter", "My brother", "The captain", "In spring", "The old house", "At noon", "Her coat"]


def filled_forms() -> list[Result]:
    """24 answers of 48 tokens, seeded."""
    prompts = [f"{one} came to the town of {other}, and" for one in BEGINNINGS for other in ("York", "Bath", "Leeds")]
    with LLM("zoo:target", drafter="none") as llm:
        return llm.generate(prompts, SamplingParams(max_tokens=48, temperature=0.4, seed=1, ignore_eos=True))
