"""`outdraft cut`: the layers asked for, whole; bad words are named before anything is written."""

from pathlib import Path

import pytest
import torch

from outdraft.cli.main import main
from outdraft.models.files.load import load_model, save_model
from outdraft.testing.tiny import random_decoder, tiny_config


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(random_decoder(tiny_config(layers=5), dtype=torch.float32), tmp_path / "model")
    (tmp_path / "model/tokenizer.json").write_text("{}")
    return tmp_path / "model"


@pytest.mark.parametrize(("words", "kept"), [([], (0, 3, 4)), (["--layers", "1,4"], (1, 4))])
def test_layers_are_the_models_own(words: list[str], kept: tuple[int, ...], model: Path, tmp_path: Path):
    assert main(["cut", str(model), "--out", str(tmp_path / "small"), *words]) == 0
    whole, small = load_model(model), load_model(tmp_path / "small")
    assert small.config.num_layers == len(kept) and (tmp_path / "small/tokenizer.json").exists()
    for place, layer in enumerate(kept):
        for name, parameter in small.layers[place].named_parameters():
            assert torch.equal(parameter, whole.layers[layer].get_parameter(name)), (place, name)
    assert torch.equal(small.embedding, whole.embedding)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--layers", "0,7"], "name some of the target's 5 layers"),
        (["--layers", "0,x"], "'0,x' is no list of numbers"),
        (["--layers", "3,0"], "in order"),
    ],
)
def test_bad_layers_are_named(words: list[str], said: str, model: Path, tmp_path: Path, capsys):
    assert main(["cut", str(model), "--out", str(tmp_path / "small"), *words]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "small").exists()


def test_nothing_is_written_over(model: Path, capsys):
    assert main(["cut", str(model), "--out", str(model)]) == 2
    assert "exists: name a new directory" in capsys.readouterr().err
