"""The prompts of `outdraft bench --suite real`: 80 questions each of three public sets, none of which a draft learned.

    python -m lab.bench.real_prompts DATA src/outdraft/bench/suites/real.jsonl.gz

    mt-bench    the first turns of MT-Bench's 80 questions (Zheng et al., 2023; Apache-2.0)
    gsm8k       of the last 473 training questions, which no draft of ours was trained on (Cobbe et al., 2021; MIT)
    humaneval   of the 164 tasks (Chen et al., 2021; MIT)

DATA holds mt-bench/question.jsonl, gsm8k/train.jsonl and humaneval/HumanEval.jsonl.gz.
"""

import argparse
import gzip
import json
from pathlib import Path

from outdraft.bench.suites import spread
from outdraft.bench.suites.formats import read_file

SETS = {
    "mt-bench": "mt-bench/question.jsonl",
    "gsm8k": "gsm8k/train.jsonl",
    "humaneval": "humaneval/HumanEval.jsonl.gz",
}
COUNT, KEPT = 80, 473


def main() -> None:
    """Write one row for each prompt."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    rows = []
    for suite, path in SETS.items():
        prompts = read_file(asked.data / path, suite)
        prompts = spread(prompts[-KEPT:] if suite == "gsm8k" else prompts, COUNT)
        rows += [{"suite": suite, "id": one.name, "category": one.category, "turns": [one.turns[0]]} for one in prompts]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    asked.out.write_bytes(gzip.compress(lines.encode("utf-8"), 9, mtime=0))


if __name__ == "__main__":
    main()
