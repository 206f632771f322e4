"""Answers that a draft was trained on, beside it: what `adapt` mixes in, so that a draft forgets less.

    python -m lab.ship_answers train.jsonl DRAFT [--count 64] [--seed 0] [--most 256]

A sample of the lines of its training, ids alone, an answer's first ones. Who gets the draft gets these texts.
"""

import argparse
import json
import random
import sys
from pathlib import Path

from outdraft.training.served import ANSWERS, read_served


def main() -> int:
    """Choose, cut, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=256, help="ids of an answer")
    asked = parser.parse_args()
    known = [one for one in read_served(asked.data) if len(one.prompt) <= asked.most]
    some = random.Random(asked.seed).sample(known, asked.count)
    with (asked.draft / ANSWERS).open("w", encoding="utf-8") as out:
        for one in some:
            ids = {"prompt_token_ids": list(one.prompt), "token_ids": list(one.answer[: asked.most])}
            out.write(json.dumps(ids, separators=(",", ":")) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
