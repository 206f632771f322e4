"""Texts of SmolLM2 with every kind of draft, in batches that requests join as others end: are they plain decoding's?

    python -m lab.smollm2.lossless VALID OUT.json [--texts 112] [--tokens 24] [--head KIND=DIR] [--kinds eagle3,...]

    VALID     answers as ids, whose prompts are asked: every other one greedy, the others at 0.7 or 1 with a seed
    --head    a trained draft of a kind; the others are made anew, untrained, so that almost all of a guess is rejected

Each kind writes all texts; the file is written after each, and a second run goes on behind the last one. Exit code 1:
a text is another one.
"""

import argparse
import json
import sys
from collections.abc import Sequence as Seq
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from lab.smollm2.kinds import OPTIONS
from outdraft import LLM, SamplingParams
from outdraft.core.learner import TargetLearner
from outdraft.core.learner_registry import find_learner
from outdraft.options.new_file import new_file
from outdraft.training.computing import open_target
from outdraft.weights.hub import resolve
from outdraft.weights.known import usual_model

FREE = ("ngram", "suffix", "recycling", "lookahead", "jacobi", "draft_verify")  # that need no training
BATCH = 8
Asked = tuple[list[int], SamplingParams]


def main() -> int:
    """Each kind that has no line yet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("valid", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--texts", type=int, default=112, help="of each kind")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--head", action="append", default=[], metavar="KIND=DIR")
    parser.add_argument("--kinds", default=",".join((*OPTIONS, *FREE)))
    asked = parser.parse_args()
    given = dict(one.split("=", 1) for one in asked.head)
    found: dict[str, Any] = json.loads(asked.out.read_text(encoding="utf-8")) if asked.out.exists() else {}
    texts = requests(asked.valid, asked.texts, asked.tokens)
    with LLM(asked.model, drafter="none", max_num_seqs=BATCH) as plain:
        wanted = [one.token_ids for one in written(plain, texts)]
        for kind in [kind for kind in asked.kinds.split(",") if kind not in found]:
            with TemporaryDirectory() as place:
                drafter: dict[str, Any] = {"name": kind}
                if kind not in FREE:
                    drafter["model"] = given.get(kind) or untrained(kind, asked.model, Path(place))
                with plain.with_speculation(drafter=drafter, num_speculative_tokens=5, policy="fixed") as llm:
                    results = written(llm, texts)
            wrong = sum(one.token_ids != text for one, text in zip(results, wanted, strict=True))
            rounds = sum(one.stats.num_steps for one in results)
            tokens = sum(len(one.token_ids) for one in results)
            found[kind] = {"texts": len(results), "wrong": wrong, "tokens a pass": round(tokens / rounds, 3)}
            found[kind]["trained"] = kind in given
            say(f"{kind}: {found[kind]}")
            with new_file(asked.out) as beside:
                beside.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    say(f"{sum(one['texts'] for one in found.values())} texts, {sum(one['wrong'] for one in found.values())} wrong")
    return int(any(one["wrong"] for one in found.values()))


def requests(path: Path, count: int, tokens: int) -> list[Asked]:
    """Prompts and settings: greedy and seeded in turn, of different lengths."""
    made = []
    with path.open(encoding="utf-8") as lines:
        for i, line in zip(range(count), lines, strict=False):
            settings: dict[str, Any] = {"max_tokens": tokens // 2 + i % (tokens // 2 + 1)}
            if i % 2:
                settings |= {"temperature": (0.7, 1.0)[i // 2 % 2], "seed": i, "top_k": (0, 40)[i // 4 % 2]}
            made.append((json.loads(line)["prompt_token_ids"][-200:], SamplingParams(**settings)))
    return made


def written(llm: LLM, asked: Seq[Asked]) -> list[Any]:
    return llm.generate([{"prompt_token_ids": ids} for ids, _ in asked], [params for _, params in asked])


@torch.no_grad()
def untrained(kind: str, model: str, place: Path) -> str:
    """A fresh draft of this kind, as its training begins."""
    method, target = find_learner(kind), open_target(resolve(usual_model(model)[0]), "bfloat16", "cpu")[0]
    options = {key: tuple(one) if isinstance(one, list) else one for key, one in OPTIONS[kind].items()}
    learner = method.new(method.options(**options), target, 0)
    assert not isinstance(learner, TargetLearner)
    learner.save(place)
    return str(place)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
