"""A page of texts that a model writes after held-out openings: for a reader to judge what the model has learned.

Data in: a model, kind of prompt -> prompt; data out: Markdown, for each prompt the greedy text and a sampled one.
"""

from collections.abc import Mapping

from outdraft.engine.callers.result import all_whole
from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams

WAYS = {
    "greedy": SamplingParams(max_tokens=128),
    "T = 0.8, seed 0": SamplingParams(max_tokens=128, temperature=0.8, seed=0),
}


def samples_page(llm: LLM, prompts: Mapping[str, str]) -> str:
    """Each prompt, and what comes after it."""
    parts = [
        "# What the zoo's target writes",
        "",
        "Openings of documents that it was not trained on, and what came after them (`lab/zoo/evaluate.toml`).",
        "",
    ]
    written = {way: all_whole(llm.generate(list(prompts.values()), params)) for way, params in WAYS.items()}
    for number, (name, prompt) in enumerate(prompts.items()):
        parts += [f"## {name}", "", *fenced(prompt)]
        for way, texts in written.items():
            parts += [f"{way}:", "", *fenced(texts[number].text)]
    return "\n".join(parts)


def fenced(text: str) -> list[str]:
    """As a block that Markdown leaves alone, whatever is in it."""
    return ["~~~~text", text.strip("\n").replace("~~~~", "~~~ ~"), "~~~~", ""]
