"""A bigger model of the same distribution: equal logits, equal greedy text, readable by transformers."""

import pytest
import torch
from models.real_models import data_folder, greedy

from outdraft.models.files.load import load_model, save_model
from outdraft.models.remake.inflate import inflate, inflate_decoder, spread
from outdraft.nn.context import CausalContext
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import TINY_ARCHITECTURES, random_decoder, tiny_config, tiny_model


def logits(model, n=30):
    ids = torch.randint(61, (n,), generator=torch.Generator().manual_seed(0))
    return model(ids, torch.arange(n), CausalContext(1, n))


@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
@pytest.mark.parametrize(("width", "depth"), [(2, None), (3, None), (1, 7), (2, 5)])
def test_the_distribution_stays(architecture, width, depth):
    model = tiny_model(architecture, layers=3, dtype=torch.float32)
    big = inflate_decoder(model, width=width, depth=depth)
    assert big.config.hidden_size == width * 32 and big.config.num_layers == (depth or 3)
    torch.testing.assert_close(logits(big), logits(model), atol=1e-4, rtol=0)


@pytest.mark.parametrize("width", [2, 3])
def test_no_two_layers_share_a_matrix(width):
    """A program that keeps equal matrices once would otherwise be given a smaller model to read."""
    big = inflate_decoder(tiny_model("llama", layers=2, dtype=torch.float32), width=width, depth=6)
    matrices = [p for name, p in big.named_parameters() if name.startswith("layers.") and p.dim() == 2]
    distinct = {tuple(p.flatten().tolist()) for p in matrices}
    assert len(distinct) == len(matrices) == 6 * 4 and all(p.any(dim=0).float().mean() > 0.6 for p in matrices)


def test_biases_and_tied_heads_are_widened_too():
    config = tiny_config("llama", tie=True)
    model = random_decoder(config, dtype=torch.float32)
    torch.testing.assert_close(logits(inflate_decoder(model, width=4)), logits(model), atol=1e-4, rtol=0)


def test_identity_layers_are_spread_evenly():
    assert [layer for layer, real in spread(2, 6) if real] == [0, 1]
    assert [real for _, real in spread(2, 6)] == [True, False, False, True, False, False]
    assert all(real for _, real in spread(3, 3))


def test_a_smaller_depth_is_refused():
    with pytest.raises(ConfigError, match="depth=1"):
        inflate_decoder(tiny_model(), depth=1)


def test_directories_are_read_by_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = tiny_model("qwen2", layers=2, dtype=torch.float32)
    save_model(model, tmp_path / "small")
    (tmp_path / "small" / "tokenizer.json").write_text("{}")
    inflate(tmp_path / "small", tmp_path / "big", width=2, depth=4)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "big").eval()
    ids = torch.arange(30)
    ours = model(ids, ids, CausalContext(1, 30))
    torch.testing.assert_close(theirs(ids[None]).logits[0], ours, atol=1e-4, rtol=0)
    assert (tmp_path / "big" / "tokenizer.json").exists()


def test_a_real_model_writes_the_same_text(tmp_path):
    folder = data_folder("tinystories-656k")
    inflate(folder, tmp_path, width=2, depth=4)
    assert greedy(load_model(tmp_path), [1], 150) == greedy(load_model(folder), [1], 150)
