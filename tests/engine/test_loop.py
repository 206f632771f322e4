"""The loop's own edges: what it drops, and what it refuses before any work."""

import pytest

from outdraft.core.params import SamplingParams
from outdraft.core.request import Request
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject


@pytest.fixture
def engine(tmp_path):
    return Subject(DrafterRow(drafter="none"), tmp_path).engine()


def request(max_tokens=8):
    return Request(prompt_token_ids=(5, 6), params=SamplingParams(max_tokens=max_tokens))


@pytest.mark.logs_faults
@pytest.mark.parametrize("error", [RuntimeError("odd"), SystemExit("bye")])
def test_every_request_is_dropped_though_one_cannot_be_cleared_away(engine, monkeypatch, error):
    seqs = [engine.add(request()) for _ in range(3)]
    engine.step()
    retire, tried = engine._retire, []

    def broken(seq):
        tried.append(seq)
        retire(seq)
        if seq is seqs[0]:
            raise error

    monkeypatch.setattr(engine, "_retire", broken)
    engine.add(request())
    engine.abandon()
    assert tried == seqs and not engine.has_work
