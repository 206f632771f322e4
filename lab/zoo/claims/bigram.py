"""Claim: a draft that is cut from its target and not yet trained accepts more than a bigram of the target's own texts.

    python lab/zoo/claims/bigram.py

A cut draft is not drawn, so a seed draws what the bigram has learned and what both are judged on: 250,000 tokens of
`train.jsonl.gz`, as many as a trial's arms learn from, and a third of the texts of `test.jsonl.gz`, a seed's own. They
are judged as a trial's arms are: chains of 4, temperature 1. The bigram is an interpolated Kneser-Ney model; the cut
draft has seen none of the texts.
"""

import sys
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray

from lab.zoo.ngram import NgramModel
from outdraft import zoo
from outdraft.core.learner_registry import find_learner
from outdraft.learn.losses import logs
from outdraft.models.files.load_codec import load_codec
from outdraft.training.computing import open_target
from outdraft.training.corpus import TrainingCorpus, open_corpus
from outdraft.training.draft import Exam
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows, example_rows
from outdraft.training.walk import Walk, walk

HOME, DEPTH, TEXTS, LENGTH = Path(__file__).parent, 4, 255, 256
SEEDS, TOKENS = 3, 250_000


def bigram_walk(batches: list[PackedRows], teacher: Teacher, bigram: NgramModel) -> Walk:
    """The rounds of a drafter that draws each token by the one before it."""
    total = None
    for rows in batches:
        lesson = teacher.lesson(rows)
        log_p = logs(teacher.logits(lesson.states)).gather(-1, rows.ids[:, 1:].flatten()[:, None])[:, 0]
        log_q = -torch.from_numpy(bigram.nats(rows.ids.numpy())).flatten()
        counts = rows.counts.flatten()
        ratio = (log_q - log_p).exp().clamp_max(1) * counts
        shape = (DEPTH, *lesson.shape)
        one = walk(ratio.view(lesson.shape).expand(shape), rows.counts, counts.view(lesson.shape).expand(shape))
        total = one if total is None else total + one
    assert total is not None
    return total


def some_texts(learned: TrainingCorpus, seed: int) -> NDArray[np.int64]:
    """The ids of texts in an order that the seed draws, up to so many tokens."""
    order = np.random.default_rng(seed).permutation(len(learned.starts) - 1)
    texts = [learned.ids[learned.starts[i] : learned.starts[i + 1]] for i in order]
    return np.concatenate(texts)[:TOKENS].astype(np.int64)


def main() -> None:
    """Print both figures for each seed, and the difference with its standard error."""
    target, _ = open_target(zoo.path("target"), "auto", "cpu")
    method = find_learner("draft_model")
    cut = method.new(method.options(), target, 0)
    teacher = Teacher(target, cut.taps)
    with TemporaryDirectory() as place, torch.no_grad(), teacher.computing():
        learned, judged = (
            open_corpus(
                [HOME / f"{name}.jsonl.gz"], load_codec(zoo.path("target")), 4096, Path(place) / name, held_out=0.0
            )[0]
            for name in ("train", "test")
        )
        batches = example_rows(judged, TEXTS, LENGTH, 5 * LENGTH)  # of five texts
        order, far = np.random.default_rng(0).permutation(len(batches)), []
        for seed in range(SEEDS):
            bigram = NgramModel(some_texts(learned, seed)[None], 2, 4096)
            part = [batches[i] for i in order[seed::SEEDS]]
            ours = Exam(batches=part, depth=DEPTH).walk(cut, teacher)
            theirs = bigram_walk(part, teacher, bigram)
            far.append(ours.tau - theirs.tau)
            sys.stdout.write(
                f"seed {seed}: cut {ours.tau:.3f} tokens a pass ({ours.conditional[0]:.3f} accepted), "
                f"bigram {theirs.tau:.3f} ({theirs.conditional[0]:.3f})\n"
            )
    sys.stdout.write(f"difference {mean(far):+.4f} ± {stdev(far) / sqrt(SEEDS):.4f} tokens a pass\n")


if __name__ == "__main__":
    main()
