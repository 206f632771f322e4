"""`outdraft bench --inflate`: trained heads follow their target, and are named by what they were made of."""

from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.bench.drafts import join_made
from outdraft.bench.lineup import RIVALS
from outdraft.bench.shelf import Shelf
from outdraft.bench.subject import load_subject
from outdraft.bench.trial import join
from outdraft.kernels.threads import torch_threads
from outdraft.options.params import SamplingParams

PROMPT = "class Reader:"  # no token of its text is nearer to the second best than 0.28 nats: none hangs on a rounding


@pytest.mark.parametrize("name", ["eagle", "ngram"])
def test_an_inflated_pair_accepts_as_the_small_one(name, tmp_path):
    rival = next(rival for rival in RIVALS if rival.name == name)
    if name == "eagle":  # on 4 bits an inflated row is cut into other groups, and rounds a little differently
        rival = replace(rival, options={"quantization": "none"})
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    with torch_threads(1):
        shelf = Shelf(tmp_path)
        small = join(load_subject("zoo:target", shelf).plain, rival)
        subject = load_subject("zoo:target", shelf, inflated="2x11")
        plain, big = subject.plain, join_made(subject.plain, rival, shelf, subject.name)
    ours, theirs = (llm.generate(PROMPT, params) for llm in (big, small))
    assert ours.token_ids == theirs.token_ids == plain.generate(PROMPT, params).token_ids
    assert ours.stats.per_step == theirs.stats.per_step and ours.stats.num_accepted_tokens > 0
    named, found = (str(llm.config["drafter"].get("model")).removeprefix("zoo:") for llm in (big, small))
    assert Path(found).name == named  # the small target's own may be the one that lies beside it
