"""EAGLE-1 as its authors write it: the fixture comes from tests/peers/eagle_by_its_authors.py."""

from pathlib import Path

import pytest
import torch
from drafters.eagle_steps import drafted

from outdraft.drafters.shared.features.last_feature import load_last_feature
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.weights.safetensors import read_tensors

PUBLISHED = Path(__file__).parent / "published/eagle1"


def test_drafting_says_what_the_authors_module_said():
    said = read_tensors(PUBLISHED / "said.safetensors")
    target = random_decoder(tiny_config(layers=2, hidden=16, vocab=23), dtype=torch.float32, exact=False)
    with torch.no_grad():
        target.lm_head.weight.copy_(said["head"])
    net = load_last_feature(PUBLISHED, target, torch.float32)
    assert net.embed is not None
    net.fuse = lambda taps: taps[0]  # the fixture's states are normed already
    ours = drafted(net, net.embed, [said["states"]], said["ids"].tolist(), 3)
    for mine, theirs in zip(ours, said["logits"], strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(said["logits"][0], said["logits"][1], atol=0.1), "steps differ, so each is tested"


def test_what_it_reads_is_the_state_behind_the_final_norm():
    target = random_decoder(tiny_config(layers=2, hidden=16, vocab=23), dtype=torch.float32)
    net, h = load_last_feature(PUBLISHED, target, torch.float32), torch.randn(3, 16)
    assert torch.equal(net.fuse([h]), target.norm(h)) and net.taps == (2,)


@pytest.mark.parametrize("width", [1, 4])
def test_it_drafts_without_a_word_about_its_kind(width: int, tmp_path: Path):
    from outdraft.engine.llm import LLM
    from outdraft.models.files.load import save_model
    from outdraft.options.params import SamplingParams

    save_model(random_decoder(tiny_config(layers=2, hidden=16, vocab=23), dtype=torch.float32), tmp_path)
    given = {"prompt_token_ids": [1, 2, 3]}
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    for words in ({}, {"method": "eagle"}):
        config = {**words, "model": str(PUBLISHED), "width": width, "num_speculative_tokens": 3}
        one = LLM(str(tmp_path), dtype="float32", speculative_config=config).generate([given], params)[0]
        assert one.token_ids == LLM(str(tmp_path), dtype="float32").generate([given], params)[0].token_ids
        assert one.stats.num_draft_tokens > 0
