"""What each peer is given to read, made once."""

from pathlib import Path
from typing import Any

import pytest

from lab.bench.peers import weights
from lab.bench.peers.spec import parse_peer
from outdraft.bench.shelf import Shelf


class Converter:
    """Stands for a peer's process: writes what it was asked to convert."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def ask(self, verb: str, **given: Any) -> dict[str, Any]:
        assert verb == "export"
        self.asked.append(given)
        Path(given["out"]).write_text(given["rounding"])
        return {"done": True}


@pytest.fixture
def converter(monkeypatch: pytest.MonkeyPatch) -> Converter:
    monkeypatch.setattr(weights, "write_gguf", lambda source, out: out.write_text(f"gguf of {source.name}"))
    return Converter()


def prepared(text: str, converter: Converter, directory: Path, shelf: Shelf, version: str = "1") -> Path:
    peer = parse_peer(text)
    return weights.prepare(peer, directory, peer.bits, converter, {"it": version}, shelf)  # type: ignore[arg-type]


def test_transformers_reads_the_directory(converter: Converter, tiny_directory: Path, tmp_path: Path):
    assert prepared("transformers", converter, tiny_directory, Shelf(tmp_path)) == tiny_directory
    assert not list(tmp_path.iterdir())


def test_llama_cpp_rounds_our_gguf_itself(converter: Converter, tiny_directory: Path, tmp_path: Path):
    shelf = Shelf(tmp_path / "shelf")
    whole = prepared("llama_cpp", converter, tiny_directory, shelf)
    assert whole.suffix == ".gguf" and whole.read_text() == "gguf of tiny" and not converter.asked
    small = prepared("llama_cpp:bits=4,server=there", converter, tiny_directory, shelf)
    assert small.read_text() == "Q4_0" and small != whole
    assert converter.asked[0]["source"] == str(whole) and converter.asked[0]["program"] == "there"
    assert prepared("llama_cpp:bits=4", converter, tiny_directory, shelf) == small and len(converter.asked) == 1
    assert prepared("llama_cpp:bits=8", converter, tiny_directory, shelf).read_text() == "Q8_0"


def test_openvino_converts_anew_for_another_version(converter: Converter, tiny_directory: Path, tmp_path: Path):
    shelf = Shelf(tmp_path)
    first = prepared("openvino:bits=8", converter, tiny_directory, shelf)
    assert first.read_text() == "int8" and converter.asked[0]["source"] == str(tiny_directory)
    assert prepared("openvino:bits=8", converter, tiny_directory, shelf, version="2") != first
    assert [one["rounding"] for one in converter.asked] == ["int8", "int8"]
