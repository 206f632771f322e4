"""`python -m lab.gpu.texts`: whole texts of `LLM(device=...)`, each drafter beside plain decoding.

For every drafter, way of sampling and way of computing (recorded passes, guarded, float32, launched, exact): how many
texts equal plain decoding's of the same way, at which token the others part, tokens a pass, and tokens a second. A case
that raises an error leaves the error in its line. Data out: JSON lines.
"""

import argparse
import json
import logging
import sys
import traceback
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from outdraft import LLM, SamplingParams

PROMPTS = [
    "It was late in the evening when the letter came. She opened it and",
    "def main(args):\n    for name in args:\n",
    "one two three four one two three four one two",
    "Once upon a time there was a small dog who",
    "The ship lay at anchor, and the captain said that",
    "import os\nimport sys\n\nclass Reader:\n",
]
DRAFTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "ngram": {"num_speculative_tokens": 4},
    "draft_model": {"drafter": {"name": "draft_model", "model": "zoo:draft"}, "num_speculative_tokens": 4},
    "eagle3": {"drafter": {"name": "eagle3", "model": "zoo:eagle3"}, "num_speculative_tokens": 4},
    "recycling": {"num_speculative_tokens": 8},
    "default": {},
    "early_exit": {"drafter": {"name": "early_exit"}, "num_speculative_tokens": 4},
    "lookahead": {"num_speculative_tokens": 8},
}
WAYS: dict[str, dict[str, Any]] = {
    "recorded": {},
    "guarded": {"guard": 0.25},
    "float32": {"dtype": "float32"},
    "launched": {"enforce_eager": True},
    "exact": {"exact": True},
}
SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.8, "seed": 5},
    "drawn": {"temperature": 0.8},
}


def main(words: list[str] | None = None) -> int:
    """Write a line a case; 0 when no case raised an error."""
    asked = _parser().parse_args(words)
    logging.basicConfig(level=logging.WARNING)
    began, failed = perf_counter(), 0
    with Path(asked.out).open("w", encoding="utf-8") as out:
        for way in asked.ways:
            how = WAYS[way]
            plain: dict[str, list[list[int]]] = {}
            for name, roles in DRAFTERS.items():
                if perf_counter() - began > 60 * asked.minutes:
                    line: dict[str, Any] = {"way": way, "drafter": name, "skipped": "out of time"}
                else:
                    line = {"way": way, "drafter": name, **_case(name, roles | how, asked, plain)}
                failed += "error" in line
                text = json.dumps(line)
                out.write(text + "\n")
                out.flush()
                sys.stdout.write(text[:600] + "\n")
                sys.stdout.flush()
    return 1 if failed else 0


def _case(
    name: str, given: dict[str, Any], asked: argparse.Namespace, plain: dict[str, list[list[int]]]
) -> dict[str, Any]:
    try:
        named = given if name == "default" else {"drafter": name, **given}
        with LLM("zoo:target", device=asked.device, **named) as llm:
            return {key: _texts(llm, key, one, asked.tokens, plain) for key, one in SAMPLING.items()}
    except Exception as error:  # one case must not cost the others
        return {"error": f"{type(error).__name__}: {error}"[:400], "where": traceback.format_exc()[-1500:]}


def _texts(
    llm: LLM, key: str, sampling: dict[str, Any], tokens: int, plain: dict[str, list[list[int]]]
) -> dict[str, Any]:
    params = SamplingParams(max_tokens=tokens, ignore_eos=True, **sampling)
    llm.generate(PROMPTS, params)  # records and warms up
    began = perf_counter()
    results = llm.generate(PROMPTS, params)
    seconds = perf_counter() - began
    texts = [list(result.token_ids) for result in results]
    line: dict[str, Any] = {
        "tokens_per_second": round(sum(map(len, texts)) / seconds, 1),
        "tau": round(sum(result.stats.tau for result in results) / len(results), 3),
        "guarded": sum(result.stats.num_guarded for result in results),
    }
    if "seed" in sampling or sampling["temperature"] == 0.0:
        want = plain.setdefault(key, texts)
        line["parts_at"] = [_first_difference(text, other) for text, other in zip(texts, want, strict=True)]
    return line


def _first_difference(text: list[int], other: list[int]) -> int | None:
    if text == other:
        return None
    return next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.gpu.texts", description="Whole texts on a device.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--minutes", type=float, default=3, help="no new case after so long")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="the ways of computing")
    parser.add_argument("--out", default="gpu-texts.jsonl")
    return parser


if __name__ == "__main__":
    sys.exit(main())
