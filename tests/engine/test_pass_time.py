"""A timed pass belongs to nobody: nothing of it stays, and texts are what they were."""

import pytest

from outdraft.cache.config import CacheConfig
from outdraft.core.request import Request
from outdraft.engine.runner import Runner
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run
from outdraft.testing.tiny import tiny_model


@pytest.mark.parametrize("layout", ["static", "paged"])
def test_a_timed_pass_leaves_nothing(layout):
    runner = Runner(tiny_model(), max_len=64, cache=CacheConfig(layout=layout))
    for rows in (1, 7, 33):
        assert runner.pass_seconds(rows) > 0
        runner.cache.check()


def test_texts_are_the_same_after_a_timed_pass(tmp_path):
    subject = Subject(DrafterRow(drafter="none"), tmp_path)
    request = Request(prompt_token_ids=(1, 2, 3))
    engine = subject.engine()
    engine.parts.target.target.pass_seconds(9)
    assert run(engine, [request])[0].seq.output == subject.oracle(request)
