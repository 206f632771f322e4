"""What a drafter guesses in the loop is what its learner says of the same text, token by token.

A guess that stands one position off, or reads a row that it should not, is accepted less and breaks nothing: only a
comparison finds it. The text goes on by the target's own tokens, so guesses are rejected on the way.
"""

from dataclasses import fields

import pytest
import torch
from contracts.test_learners import CASES, LEARNERS, VOCAB, make
from drafters.drafting import make as make_drafter
from drafters.drafting import sequence, write

from outdraft.core.learner import TargetLearner
from outdraft.core.registry import find
from outdraft.engine.runner import Runner
from outdraft.testing.tiny import tiny_model
from outdraft.training.packing import PackedRows

LENGTH, DEPTH = 26, 3


@pytest.fixture(scope="module")
def target():
    made = tiny_model(vocab=VOCAB, layers=3, seed=1, dtype=torch.float32)
    made.set_exact(True)
    return made


class Watched:
    """A drafter whose guesses are kept: the text, and the tokens of the chain behind it."""

    def __init__(self, drafter):
        self._drafter, self.guesses = drafter, []

    def __getattr__(self, name):
        return getattr(self._drafter, name)

    def propose(self, seqs, budgets):
        drafts = self._drafter.propose(seqs, budgets)
        for seq, draft in zip(seqs, drafts, strict=True):
            wanted = draft.roles is None or draft.roles == 0
            chain = draft.tokens[torch.as_tensor(wanted).expand(len(draft.tokens))].tolist()
            self.guesses.append((list(seq.tokens), chain[1:]))
        return drafts


@torch.no_grad()
def foretold(learner, teacher, tokens, start):
    """The best token of each depth behind a text whose pending token is at `start`; None where nothing is guessed."""
    ids = torch.tensor([[*tokens, 0]])
    counts = torch.ones(1, len(tokens), dtype=torch.bool)
    outlook = learner.look(teacher.lesson(PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=counts)))
    guesses = list(outlook.guesses) * (DEPTH if outlook.recurs else 1)
    found = []
    for depth, guess in enumerate(guesses[:DEPTH], 1):
        at = (guess.rows == start + depth - 1).nonzero()[:, 0]
        best = guess.head(guess.states[at]).argmax(-1) if len(at) else torch.empty(0)
        found.append(None if not len(at) else int(best[0] if guess.vocab is None else guess.vocab[best[0]]))
    return found


@pytest.mark.parametrize("case", LEARNERS)
def test_the_loop_guesses_what_the_learner_says(case, target, tmp_path):
    method, learner, teacher = make(case, target)
    if isinstance(learner, TargetLearner) or (not method.formats and method.model_type is None):
        pytest.skip("the target changes, or the draft is a model by itself")
    learner.save(tmp_path)
    name, runner = method.drafter or CASES[case][0], Runner(target)
    asked = {"model": str(tmp_path), **method.drafts, "sample": "greedy"}
    known = {one.name for one in fields(find("drafter", name).options)}
    drafter = Watched(make_drafter(name, runner.port, **{key: asked[key] for key in asked if key in known}))
    with torch.inference_mode():
        write([sequence([3, 1, 4, 1, 5], max_tokens=LENGTH)], runner, drafter, k=DEPTH)
    seen = 0
    for text, chain in drafter.guesses:
        said = foretold(learner, teacher, [*text, *chain], len(text) - 1)
        for token, best in zip(chain, said, strict=False):
            if best is not None:
                assert token == best, (text, chain, said)
                seen += 1
    assert seen > 20, "there were guesses to compare"
