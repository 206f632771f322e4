"""SmolLM2's own answers to the prompts of `prompts.py`, written by outdraft in shards that can be interrupted.

    python lab/smollm2/answers.py MODEL prompts.jsonl answers-0.jsonl.gz --shard 0/12 --seconds 180

The prompt's number decides the temperature (0, 0.7, 0.85 or 1) and is the seed; at most 256 tokens. For a prompt of the
kind "own" the model writes the user's turn behind its own user mark first, at temperature 0.8. Data out: lines that
`outdraft train --data` reads, a compressed member for each batch: {"prompt_token_ids", "token_ids", "finish_reason",
"asked": [temperature, most tokens, seed], "kind"}.
"""

import argparse
import gzip
import json
import sys
from itertools import islice
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from outdraft import LLM, SamplingParams
from outdraft.training.examples import encode, pieces_of

TEMPERATURES = (0.0, 0.7, 0.85, 1.0)
MAX_TOKENS = 256
OWN_TOKENS = 120
MARK = "MARK"  # stands for the user's words in a rendered chat


def main() -> int:
    """Answer until the prompts or the seconds are used up."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("prompts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=512, help="prompts whose answers are written together")
    parser.add_argument("--open", type=int, default=64, help="texts that are decoded together")
    parser.add_argument("--seconds", type=float, default=1e9, help="no new batch after so long")
    asked = parser.parse_args()
    began = perf_counter()
    index, count = map(int, asked.shard.split("/"))
    with asked.prompts.open(encoding="utf-8") as file:
        mine = [(number, json.loads(line)) for number, line in enumerate(file) if number % count == index]
    llm = LLM(asked.model, drafter="none", device=asked.device, max_num_seqs=asked.open, max_model_len=2048)
    todo, tokens = iter(mine[done(asked.out) :]), 0
    while perf_counter() - began < asked.seconds and (batch := list(islice(todo, asked.batch))):
        lines = answer(llm, batch)
        tokens += sum(len(line["token_ids"]) for line in lines)
        with gzip.open(asked.out, "at", encoding="utf-8") as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)
        sys.stdout.write(f"shard {asked.shard}: {tokens} tokens, {perf_counter() - began:.0f} s\n")
        sys.stdout.flush()
    return 0


def done(path: Path) -> int:
    """Whole lines that are there."""
    if not path.exists():
        return 0
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return sum(1 for _ in file)


def answer(llm: LLM, batch: list[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    """A line for each prompt, in order."""
    own = [number for number, record in batch if record["kind"] == "own"]
    turns = dict(zip(own, own_turns(llm, own), strict=True))
    assert llm.tokenizer is not None
    template = llm.tokenizer.chat_template
    prompts = []
    for number, record in batch:
        messages = turns.get(number) or record["messages"]
        ids, _ = encode(pieces_of({"messages": messages}, template, str(number), asks=True), llm.tokenizer, str(number))
        prompts.append(ids[-1700:])
    settings = [(Random(number).choice(TEMPERATURES), MAX_TOKENS, number) for number, _ in batch]
    results = llm.generate(
        [{"prompt_token_ids": ids} for ids in prompts],
        [SamplingParams(temperature=t, max_tokens=most, seed=seed) for t, most, seed in settings],
    )
    return [
        {
            "prompt_token_ids": ids,
            "token_ids": list(result.token_ids),
            "finish_reason": result.finish_reason,
            "asked": list(how),
            "kind": record["kind"],
        }
        for ids, result, how, (_, record) in zip(prompts, results, settings, batch, strict=True)
    ]


def own_turns(llm: LLM, numbers: list[int]) -> list[list[dict[str, str]]]:
    """Chats of one turn each, which the model writes as its user."""
    if not numbers:
        return []
    assert llm.tokenizer is not None and llm.tokenizer.chat_template is not None
    shown = llm.tokenizer.chat_template.render([{"role": "user", "content": MARK}], add_generation_prompt=False).text
    params = [SamplingParams(temperature=0.8, max_tokens=OWN_TOKENS, seed=1_000_000 + number) for number in numbers]
    results = llm.generate([shown[: shown.index(MARK)]] * len(numbers), params)
    return [[{"role": "user", "content": result.text.strip() or "Hello!"}] for result in results]


if __name__ == "__main__":
    sys.exit(main())
