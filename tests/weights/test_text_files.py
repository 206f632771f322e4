"""What says how texts are read goes along with the weights, wherever a model is written anew."""

from pathlib import Path

import pytest

from outdraft.cli.main import main
from outdraft.models.files.load import save_model
from outdraft.models.remake.inflate import inflate
from outdraft.testing.tiny import tiny_model
from outdraft.weights.text_files import copy_text_files

NAMES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
    "chat_template.json",
    "processor_config.json",
    "vocab.json",
    "merges.txt",
    "generation_config.json",
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(tiny_model("llama", layers=3), tmp_path / "model")
    for name in NAMES:
        (tmp_path / "model" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "model" / name).write_text("{}")
    return tmp_path / "model"


def copied(directory: Path) -> list[str]:
    return sorted(
        str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file() and path.stem != "model"
    )


def cut(model: Path, new: Path) -> None:
    assert main(["cut", str(model), "--out", str(new), "--layers", "0,2"]) == 0


def quantize(model: Path, new: Path) -> None:
    assert main(["quantize", str(model), "--out", str(new), "--group-size", "0"]) == 0


@pytest.mark.parametrize("make", [cut, quantize, inflate, copy_text_files])
def test_every_file_goes_along(make, model: Path, tmp_path: Path):
    (tmp_path / "new").mkdir() if make is copy_text_files else None
    make(model, tmp_path / "new")
    assert set(NAMES) <= set(copied(tmp_path / "new"))


def test_beside_a_gguf_file_lies_a_tokenizer_and_no_default(model: Path, tmp_path: Path):
    (model / "m.gguf").write_bytes(b"")
    (tmp_path / "new").mkdir()
    copy_text_files(model / "m.gguf", tmp_path / "new")
    assert copied(tmp_path / "new") == sorted(set(NAMES) - {"generation_config.json"})
