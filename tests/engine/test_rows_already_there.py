"""A target may hold the beginning of a prompt already: the loop goes on from there, and the text is the same."""

import pytest

from outdraft.cache.config import CacheConfig
from outdraft.core.request import Request
from outdraft.engine.runner import Runner
from outdraft.options.params import SamplingParams
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run

PROMPT = [5, 3, 9, 5, 3, 9, 5, 3, 9, 7, 5, 3]


class Remembering(Runner):
    """Takes the rows that a new prompt has in common with the last sequence's from there."""

    last: tuple[int, list[int]] | None = None

    def begin(self, seq):
        num_there = 0
        if self.last is not None:
            held, tokens = self.last
            pairs = zip(tokens, seq.tokens[:-1], strict=False)
            num_there = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(tokens), len(seq.tokens) - 1))
            self.cache.fork(held, seq.id)
            self.cache.truncate(seq.id, num_there)
        else:
            super().begin(seq)
        return num_there

    def end(self, seq):
        if self.last is not None:
            self.cache.free(self.last[0])
        self.last = seq.id, seq.tokens[: seq.num_cached]


class Reusing(Subject):
    def make_runner(self, max_len, cache: CacheConfig):
        return Remembering(self.decoder, max_len=max_len, cache=cache)


def request(*end):
    params = SamplingParams(max_tokens=12)
    return Request(prompt_token_ids=(*PROMPT, *end), params=params)


@pytest.mark.parametrize(
    ("drafter", "options"),
    [("ngram", {}), ("lookahead", {}), ("early_exit", {"exit_layer": 1}), ("on_the_fly_skip", {}), ("recycling", {})],
)
def test_the_loop_goes_on_from_the_rows_that_are_there(drafter, options, tmp_path):
    subject = Reusing(DrafterRow(drafter=drafter, options=options), tmp_path)
    engine = subject.engine(recheck=True)  # audited: every row in the cache is compared with a fresh computation
    for prompt, num_read in (
        (request(), len(PROMPT) - 1),
        (request(), 0),
        (request(4, 8), 1),
        (request(4, 8, 1, 2), 1),
    ):
        (outcome,) = run(engine, [prompt])
        assert outcome.seq.output == subject.oracle(prompt)
        assert sum(event.num_certain for event in outcome.events) == num_read
