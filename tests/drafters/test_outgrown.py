"""A text that outgrows a draft's own context: it is drafted for no further, and is what plain decoding writes."""

import json
import logging
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from contracts.native_rows import (
    DFLASH,
    block_net,
    eagle3_net,
    eagle_net,
    last_feature_net,
    mtp_net,
    p_eagle_net,
    twin,
    wide,
)
from drafters.drafting import make, sequence, write

from outdraft import LLM, SamplingParams
from outdraft.drafters.shared.networks.paired_text import PairedTexts
from outdraft.engine.runner import Runner
from outdraft.weights.hub import resolve

V, LIMIT, ENOUGH = 61, 24, 4
PLAIN = {"max_position_embeddings": LIMIT}
STRETCHED = {  # whose positions of long texts stand in another part of the table
    "max_position_embeddings": 64,
    "rope_scaling": {
        "rope_type": "longrope",
        "short_factor": [1.0] * 16,
        "long_factor": [4.0] * 16,
        "original_max_position_embeddings": LIMIT,
    },
}
DRAFTS = {
    "draft_model": (twin, PLAIN),
    "eagle": (eagle_net, {"max_len": LIMIT}),
    "eagle1": (last_feature_net, PLAIN),
    "eagle3": (eagle3_net, PLAIN),
    "eagle3, stretched": (eagle3_net, STRETCHED),
    "mtp": (mtp_net, PLAIN),
    "p_eagle": (p_eagle_net, PLAIN),
    "dflash": (partial(block_net, DFLASH), PLAIN),
    "dflash, stretched": (partial(block_net, DFLASH), STRETCHED),
}


def limited(place, keys):
    """Its config.json with these keys of the layers."""
    path = Path(place) / "config.json"
    told = json.loads(path.read_text())
    layers = told.get("transformer_layer_config", told)
    layers.pop("rope_parameters", None)
    layers.update(keys)
    path.write_text(json.dumps(told))


def guesses(runner, drafter, seqs):
    """Tokens of each text and of its guess, round after round."""
    found, propose = [], drafter.propose

    def watched(texts, budgets):
        drafts = propose(texts, budgets)
        found.extend((len(seq.tokens), draft.num_nodes - 1) for seq, draft in zip(texts, drafts, strict=True))
        return drafts

    drafter.propose = watched
    with torch.inference_mode():
        write(seqs, runner, drafter, k=ENOUGH)
    return found


@pytest.mark.parametrize("draft", DRAFTS)
def test_nothing_is_drafted_beyond_the_drafts_own_context(draft, tmp_path, caplog):
    runner, (side, keys) = Runner(wide(V)), DRAFTS[draft]
    place = side(wide(V), tmp_path)["model"]
    limited(place, keys)
    drafter = make(draft.partition(",")[0], runner, model=place, width=1, quantization="none")
    prompts = [list(range(1, 11)), list(range(1, 40))]  # the second is longer already
    seqs = [sequence(prompt, max_len=runner.max_len, max_tokens=30) for prompt in prompts]
    with caplog.at_level(logging.WARNING):
        found = guesses(runner, drafter, seqs)
    assert all(guess <= max(0, LIMIT + 1 - length) for length, guess in found)
    assert {guess for length, guess in found if length <= LIMIT + 1 - ENOUGH} == {ENOUGH}
    plain = [sequence(prompt, max_len=runner.max_len, max_tokens=30) for prompt in prompts]
    with torch.inference_mode():
        write(plain, runner, make("none"))
    assert [seq.tokens for seq in seqs] == [seq.tokens for seq in plain]
    if draft != "draft_model":
        assert caplog.text.count("has outgrown the draft's own context of 24 tokens") == 1
    assert drafter.model.is_empty if draft == "draft_model" else drafter.is_empty


def test_texts_that_begin_like_one_that_outgrew_share_what_was_read(tmp_path, monkeypatch):
    """The target's rows of the long prompt are found again, and so must be the draft's, or it would have a gap."""
    place, limit, shared = tmp_path / "eagle3", 100, list(range(5, 53))
    shutil.copytree(resolve("zoo:eagle3"), place)
    limited(place, {"max_position_embeddings": limit})
    begin, found = PairedTexts.begin, []

    def watched(texts, seqs):
        begin(texts, seqs)
        found.extend((seq.num_cached, len(texts.texts[seq.id].ids)) for seq in seqs)

    monkeypatch.setattr(PairedTexts, "begin", watched)
    drafter = {"name": "eagle3", "model": str(place)}
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    with LLM("zoo:target", drafter=drafter, num_speculative_tokens=4, enable_prefix_caching=True) as llm:
        for prompt in (shared + list(range(60, 200)), [*shared, 7, 8], [*shared, 9, 8]):
            llm.generate({"prompt_token_ids": prompt}, params)
    assert found == [(0, 0), (32, 32), (32, 32)]
