"""A stream of requests for the zoo's target, on which the learner's settings are tried in minutes.

    python -m lab.zoo.stream toy.jsonl toy_old.jsonl

300 heads of Python functions, each with an open docstring, and the zoo's held-out prompts; the target's own answers
of 96 tokens at temperature 0.7. Data out: lines {"prompt_token_ids", "token_ids", "domain"}, the former in the order of
service.
"""

import json
import random
import sys
from pathlib import Path

from outdraft import LLM, SamplingParams, zoo

WHO = "rain letter brother captain judge house rider coat doctor stranger neighbour king mother teacher sailor".split()
TOWNS = (
    "York Bath Leeds Paris London Dover Boston Rome Oxford Berlin Vienna Dublin Geneva Turin Lyon Kiel Metz Ghent "
    "Delft Basel"
).split()
VERBS = "read write open close find make take give send load".split()


def functions() -> list[str]:
    """The heads, in the order of service."""
    rng = random.Random(5)
    found = [
        f'def {rng.choice(VERBS)}_{town.lower()}_{who}(self, name, value):\n    """' for who in WHO for town in TOWNS
    ]
    rng.shuffle(found)
    return found


def main() -> int:
    """Ask, and write the answers down."""
    for path, domain, prompts in zip(
        map(Path, sys.argv[1:3]), ("functions", "old"), (functions(), [*zoo.heldout_prompts().values()]), strict=True
    ):
        settings = [
            SamplingParams(temperature=0.7, max_tokens=96, seed=i, ignore_eos=True) for i in range(len(prompts))
        ]
        with LLM("zoo:target", drafter="none", max_num_seqs=50) as llm, path.open("w", encoding="utf-8") as out:
            for one in llm.generate(prompts, settings):
                ids = {"prompt_token_ids": list(one.prompt_token_ids), "token_ids": list(one.token_ids)}
                out.write(json.dumps({**ids, "domain": domain}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
