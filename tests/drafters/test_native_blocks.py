"""Blocks on the native kernels leave nothing behind."""

import pytest
from contracts.native_rows import ROWS
from contracts.test_native_drafters import PROMPTS, NativeSubject, read_prompt

from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.engine.runner import Runner
from outdraft.kernels.library import library
from outdraft.options.params import SamplingParams

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built")


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.drafter in ("dflash", "dflash2", "dspark")], ids=lambda row: row.name
)
def test_its_rows_are_gone_with_the_pass(row, tmp_path):
    subject = NativeSubject(row, tmp_path)
    runner, engine = Runner(subject.decoder), subject.engine()
    drafter = subject.method.build(subject.options, runner.port)
    seqs = [engine.add(Request(prompt_token_ids=prompt, params=SamplingParams())) for prompt in PROMPTS]
    for seq in seqs:
        runner.begin(seq)
        drafter.begin([seq])
        read_prompt(seq, runner, drafter)
    drafter.propose(seqs, [Budget(depth=4)] * len(seqs))
    texts = drafter._texts
    for seq in seqs:
        assert texts.cache._num_guessed[seq.id] == 0
        assert texts.cache.rows.length(seq.id) == len(seq.tokens) - 1, "committed rows alone"
