"""What a part behind the head brings over the marginals of a block's slots, on networks that are trained.

    python -m lab.zoo.selector zoo:target lab/zoo/claims/test.jsonl.gz dflash2 DIR... [--count 256] [--temperature 1]

Each network is judged twice on the same texts: as it is, and by the scores of its slots alone. The difference is given
with its standard error over the networks (of several seeds).
"""

import argparse
import sys
from math import sqrt
from pathlib import Path
from statistics import mean, stdev

import torch

from outdraft.core.learner_registry import find_learner
from outdraft.drafters.shared.blocks.learn import BlockLearner
from outdraft.models.files.load_codec import load_codec
from outdraft.training.computing import open_target
from outdraft.training.corpus import open_corpus
from outdraft.training.draft import Exam
from outdraft.training.examples import find_files
from outdraft.training.lessons import Teacher
from outdraft.training.packing import example_rows
from outdraft.weights.hub import resolve
from outdraft.weights.known import usual_model

SEQ_LEN = 256


@torch.no_grad()
def main() -> int:
    """A line for each network, and the difference over all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("texts", type=Path)
    parser.add_argument("kind")
    parser.add_argument("drafts", type=Path, nargs="+")
    parser.add_argument("--count", type=int, default=256, help="texts")
    parser.add_argument("--depth", type=int, default=7)
    parser.add_argument("--temperature", type=float, default=1.0)
    asked = parser.parse_args()
    source = resolve(usual_model(asked.model)[0])
    target, _ = open_target(source, "auto", "cpu")
    place = asked.drafts[0] / "run" / "judged"
    texts, _, _ = open_corpus(
        find_files((str(asked.texts),)), load_codec(source), target.config.vocab_size, place, held_out=0.0
    )
    exam = Exam(
        batches=example_rows(texts, asked.count, SEQ_LEN, 8 * SEQ_LEN), depth=asked.depth, temperature=asked.temperature
    )
    gains = []
    for draft in asked.drafts:
        method = find_learner(asked.kind)
        learner = method.load(method.options(), target, draft)
        assert isinstance(learner, BlockLearner) and learner.net.correction is not None
        teacher = Teacher(target, learner.taps)
        with teacher.computing():
            whole = exam.walk(learner, teacher)
            learner.net.correction = None
            bare = exam.walk(learner, teacher)
        gains.append(whole.tau - bare.tau)
        sys.stdout.write(f"{draft.name}: {whole.tau:.4f} tokens a pass, {bare.tau:.4f} by marginals\n")
    error = f" ± {stdev(gains) / sqrt(len(gains)):.4f}" if len(gains) > 1 else ""
    sys.stdout.write(f"{mean(gains):+.4f}{error} over {len(gains)} networks\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
