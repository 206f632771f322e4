"""Model directories for the tutorial's classes: a tiny target, a draft that is mostly right, one that knows nothing."""

from pathlib import Path

import pytest
import torch
from contracts.sides import smaller_model, twin

from outdraft.models.files.load import save_model
from outdraft.testing.tiny import tiny_model


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name -> directory, vocabulary 61, no tokenizer: prompts are ids."""
    home = tmp_path_factory.mktemp("models")
    target = tiny_model("llama", vocab=61, layers=2, seed=1, dtype=torch.float32)
    save_model(target, home / "target")
    twin(target, home)
    smaller_model(target, home / "useless")
    return {"target": home / "target", "good": home / "twin", "useless": home / "useless"}
