"""Real tokenizers, where the data folder is at hand."""

import os
from pathlib import Path

import pytest

from outdraft.codecs.text import TextCodec

DATA = Path(os.environ.get("OUTDRAFT_DATA", Path(__file__).parents[3] / "shared/data"))


def data(name: str) -> Path:
    """A folder of third-party data, or a skip that says what is missing."""
    if not (DATA / name).is_dir():
        pytest.skip(f"no data folder {name!r}: set OUTDRAFT_DATA to a folder that holds it")
    return DATA / name


@pytest.fixture(scope="session", params=["tokenizer-gpt2", "tokenizer-neox20b", "tinystories-656k"])
def real_directory(request: pytest.FixtureRequest) -> Path:
    """GPT-2 (byte level), NeoX (byte level, normaliser), Llama 2 style (byte fallback, start token)."""
    return data(request.param)


@pytest.fixture(scope="session")
def codec(real_directory: Path) -> TextCodec:
    """Loaded once."""
    return TextCodec.load(real_directory)
