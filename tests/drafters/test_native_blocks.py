"""Blocks on the native kernels leave nothing behind."""

from dataclasses import replace
from functools import partial

import pytest
from contracts.native_rows import BLOCKS, block_net
from contracts.test_native_drafters import PROMPTS, NativeSubject, read_prompt

from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.drafters.dflash import KIND as DFLASH
from outdraft.drafters.shared.blocks.native import NativeBlocks
from outdraft.engine.runner import Runner
from outdraft.kernels.library import library
from outdraft.options.params import SamplingParams

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built")


def begun(row, directory):
    """A drafter that has read a few prompts, and their sequences."""
    subject = NativeSubject(row, directory)
    runner, engine = Runner(subject.decoder), subject.engine()
    drafter = subject.method.build(subject.options, runner.port)
    seqs = [engine.add(Request(prompt_token_ids=prompt, params=SamplingParams())) for prompt in PROMPTS]
    for seq in seqs:
        runner.begin(seq)
        drafter.begin([seq])
        read_prompt(seq, runner, drafter)
    return drafter, seqs


@pytest.mark.parametrize("row", BLOCKS, ids=lambda row: row.name)
def test_its_rows_are_gone_with_the_pass(row, tmp_path):
    drafter, seqs = begun(row, tmp_path)
    drafter.propose(seqs, [Budget(depth=4)] * len(seqs))
    cache = drafter._texts.cache
    for seq in seqs:
        assert cache._num_guessed[seq.id] == 0
        assert cache.rows.length(seq.id) == len(seq.tokens) - 1, "committed rows alone"


KNOWN = {"norm": "rms32"}, {"windows": (3, 3)}, {}
OTHERS = {"sinks": True}, {"value_scale": 0.6}, {"windows": (3, 3), "causal_windows": True}


@pytest.mark.parametrize("flags", [*KNOWN, *OTHERS], ids=str)
@pytest.mark.parametrize(("asked", "bits"), [("auto", 8), ("int4", 4), ("none", 16)])
def test_what_the_kernels_do_not_know_pytorch_runs(flags, asked, bits, tmp_path):
    """The report says how the maps are rounded, which the kernels compute in either case."""
    row = replace(BLOCKS[0], side=partial(block_net, DFLASH, **flags), options={"width": 1, "quantization": asked})
    subject = NativeSubject(row, tmp_path)
    drafter = subject.method.build(subject.options, Runner(subject.decoder).port)
    (weights,) = drafter.traits.weights
    assert (drafter._texts._native is not None) == (flags in KNOWN)
    assert weights.bits == (4 if asked == "auto" and flags in KNOWN else bits)


def test_they_are_gone_where_the_pass_broke(tmp_path, monkeypatch):
    drafter, seqs = begun(BLOCKS[0], tmp_path)

    def breaks(*_):
        raise RuntimeError

    monkeypatch.setattr(NativeBlocks, "_layers", breaks)
    with pytest.raises(RuntimeError):
        drafter.propose(seqs, [Budget(depth=4)] * len(seqs))
    assert not any(drafter._texts.cache._num_guessed.values())
