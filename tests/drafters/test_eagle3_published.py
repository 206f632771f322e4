"""EAGLE-3 as its authors write it: the fixture comes from tests/peers/eagle_by_its_authors.py."""

from pathlib import Path

import torch
from drafters.eagle_steps import drafted

from outdraft.drafters.eagle3.formats import FORMATS, load_eagle3
from outdraft.models.networks.port import facts_of
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.weights.safetensors import read_tensors

PUBLISHED = Path(__file__).parent / "published/eagle3"


def test_drafting_says_what_the_authors_module_said():
    said = read_tensors(PUBLISHED / "said.safetensors")
    target = random_decoder(tiny_config(layers=6, hidden=16, vocab=23), dtype=torch.float32)
    net = load_eagle3(PUBLISHED, facts_of(target), torch.float32)
    assert net.embed is not None and net.config.taps == (2, 3, 3) and net.config.draft_vocab_size == 11
    ours = drafted(net, net.embed, list(said["states"].chunk(3, -1)), said["ids"].tolist(), 3)
    for mine, theirs in zip(ours, said["logits"], strict=True):
        kept = theirs > -torch.inf
        torch.testing.assert_close(mine[kept[: len(mine)]], theirs[kept], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(said["logits"][0], said["logits"][1], atol=0.1), "steps differ, so each is tested"


def test_written_again_it_has_every_tensor_that_it_had(tmp_path: Path):
    target = random_decoder(tiny_config(layers=6, hidden=16, vocab=23), dtype=torch.float32)
    original = next(one for one in FORMATS if one.name == "eagle")
    assert original.matches(PUBLISHED)
    original.write(original.read(PUBLISHED, target, None), target, "t", tmp_path)
    pickled = torch.load(PUBLISHED / "pytorch_model.bin", weights_only=True)
    written = read_tensors(tmp_path / "model.safetensors")
    assert written.keys() == pickled.keys()
    assert all(torch.equal(written[name], pickled[name]) for name in pickled)
