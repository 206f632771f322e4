"""Medusa's heads know more than the last token, and the less the farther they look ahead (Cai et al., 2024)."""

import numpy as np
import torch

from lab.zoo.pretrain import NextToken
from lab.zoo.streams import Sampler, Stream
from outdraft.core.learner_registry import find_learner
from outdraft.training.lessons import Teacher
from outdraft.training.tree import count_ranks

from .toys import draft_loop, draft_objective, lesson_rows, toy_decoder, toy_loop

TOKENS, HEADS = 8, 3


def language(seed: int) -> np.ndarray:
    """A token mostly follows from the two before it, so the last one alone says little."""
    follows = np.random.default_rng(7).integers(TOKENS, size=(TOKENS, TOKENS))
    rng, ids = np.random.default_rng(seed), [0, 1]
    for certain, other in zip(rng.random(20_000) < 0.85, rng.integers(TOKENS, size=20_000), strict=True):
        ids.append(int(follows[ids[-2], ids[-1]] if certain else other))
    return np.array(ids, np.uint16)


def sampler(seed: int) -> Sampler:
    return Sampler([Stream(name="pairs", ids=language(seed), weight=1.0, starts=None)], seed)


def bigram_at(distance: int, learned: torch.Tensor, judged: torch.Tensor) -> float:
    """How often the token that mostly stands so far behind this one does so here."""
    seen = torch.zeros(TOKENS, TOKENS)
    seen.index_put_((learned[:-distance], learned[distance:]), torch.ones(len(learned) - distance), accumulate=True)
    return float((seen.argmax(-1)[judged[:, :-distance]] == judged[:, distance:]).float().mean())


def test_heads_beat_the_bigram_at_their_distance_and_fall_with_it(tmp_path):
    """Head i has read the token at r and guesses that at r + i + 2."""
    target, texts = toy_decoder(1), sampler(0)
    toy_loop(NextToken(target), tmp_path / "target", data=texts, steps=100).run()
    target.requires_grad_(False)
    method = find_learner("medusa")
    learner = method.new(method.options(num_heads=HEADS), target, 0)
    draft_loop(draft_objective(learner, target), tmp_path / "heads", sampler=texts, steps=40).run()
    judged = sampler(1).rows(0, 0, 128, 17)
    counted = count_ranks(learner, Teacher(target, learner.taps), [lesson_rows(judged)], ranks=1)
    heads = [hits[0] / guesses for hits, guesses in counted]
    learned = torch.from_numpy(language(0).astype(np.int64))
    bigrams = [bigram_at(head + 2, learned, judged) for head in range(HEADS)]
    assert all(ours > theirs + 0.1 for ours, theirs in zip(heads, bigrams, strict=True)), (heads, bigrams)
    assert heads[0] > heads[1] + 0.02 and heads[1] > heads[2] + 0.02, heads
