"""A made-up peer in transformers' place, and a tiny model for the real one."""

from pathlib import Path

import pytest
import torch
from bench.peers.made_up import install

from outdraft.models.files.load import save_model
from outdraft.testing.tiny import tiny_model


@pytest.fixture
def workers(tmp_path: Path) -> Path:
    """The made-up peer's folder."""
    return install(tmp_path / "workers")


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers in float32."""
    directory = tmp_path_factory.mktemp("peers") / "tiny"
    save_model(tiny_model("llama", seed=5, dtype=torch.float32), directory)
    return directory
