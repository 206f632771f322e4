"""At temperature 1 running ahead keeps at least nine tenths of what it keeps at temperature 0 of its draft's tokens.

Tokens a target pass of PEARL and of PipeInfer's run-ahead, relative to the same draft model in the serial loop. The
run-ahead goes on behind each pass here, so that no figure depends on the clock. `-s` shows the figures.
"""

import json
from functools import cache
from pathlib import Path

import pytest

import outdraft
from outdraft import LLM, SamplingParams
from outdraft.decode.executor import Overlapped, Serial

pytestmark = pytest.mark.slow

INNER = {"method": "draft_model", "model": "zoo:draft"}
OPTIONS = {"draft_model": {"model": "zoo:draft"}, "pearl": {"drafter": INNER}, "run_ahead": {"drafter": INNER}}


@cache
def tokens_per_pass(drafter, verifier, depth, temperature):
    lines = (Path(outdraft.__file__).parent / "zoo" / "heldout.jsonl").read_text().splitlines()[:12]
    prompts = [json.loads(line)["prompt"][:200] for line in lines]
    llm = LLM(
        "zoo:target", drafter={"name": drafter, **OPTIONS[drafter]}, verifier=verifier, num_speculative_tokens=depth
    )
    params = SamplingParams(max_tokens=64, temperature=temperature, seed=1)  # these rules keep to p, not to the seed
    stats = [result.stats for result in llm.generate(prompts, params)]
    return sum(one.num_tokens for one in stats) / sum(one.num_steps for one in stats)


@pytest.mark.parametrize(
    ("drafter", "depth", "verifier"),
    [("pearl", 4, "rejection"), ("pearl", 8, "block"), ("run_ahead", 4, "block"), ("run_ahead", 8, "rejection")],
)
def test_the_ratio_to_the_same_draft_model(drafter, depth, verifier, monkeypatch):
    monkeypatch.setattr(Overlapped, "beside", Serial.beside)
    ratios = []
    for temperature in (0.0, 1.0):
        ahead, serial = (tokens_per_pass(name, verifier, depth, temperature) for name in (drafter, "draft_model"))
        ratios.append(ahead / serial)
        print(f"\n{verifier} k={depth} T={temperature:g}: {drafter} {ahead:.2f}, draft_model {serial:.2f}", end="")
    print(f"; {ratios[0]:.2f} at T=0, {ratios[1]:.2f} at T=1")
    assert ratios[1] >= 0.9 * ratios[0]
