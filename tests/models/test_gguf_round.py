"""GGUF files that we round: every family, every mixture, what they keep, and what is refused."""

import logging
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from models.test_converted_gguf import FILES, SAID, logits_of
from models.test_gguf_write import model_directory

from outdraft import LLM, SamplingParams
from outdraft.models.files.gguf_mixtures import MIXTURES
from outdraft.models.files.gguf_write import write_gguf
from outdraft.models.files.load import load_model
from outdraft.models.remake.gguf_round import write_rounded_gguf
from outdraft.nn.rope import RopeConfig
from outdraft.options.errors import ConfigError, ModelLoadError
from outdraft.weights.gguf import GgufFile

FAR = {  # nats a token from the whole model, whose random weights are wide; a tenth more than measured
    "q4_0": 0.74,
    "q4_1": 0.58,
    "q5_0": 0.29,
    "q5_1": 0.19,
    "q8_0": 0.0055,
    "q2_k": 1.75,
    "q3_k_s": 1.22,
    "q3_k_m": 1.07,
    "q3_k_l": 1.05,
    "q4_k_s": 0.55,
    "q4_k_m": 0.54,
    "q5_k_s": 0.2,
    "q5_k_m": 0.175,
    "q6_k": 0.055,
    "iq4_nl": 0.61,
    "iq4_xs": 0.6,
}
WIDE = dict(hidden_size=256, head_dim=64, intermediate_size=512, rope=RopeConfig(dim=64), windows=())


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of widths that all blocks divide."""
    return model_directory(tmp_path_factory.mktemp("wide"), "llama", torch.bfloat16, num_layers=8, **WIDE)


@pytest.fixture(scope="module")
def whole(wide: Path) -> Path:
    write_gguf(wide, wide / "whole.gguf")
    return wide / "whole.gguf"


def far(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Mean Kullback-Leibler divergence of two passes in nats."""
    one, other = ours.float().log_softmax(-1), theirs.float().log_softmax(-1)
    return float((one.exp() * (one - other)).sum(-1).mean())


@pytest.mark.parametrize("name", SAID)
def test_every_family_that_is_read(name: str, tmp_path: Path) -> None:
    path, out = FILES / f"{name}.gguf", tmp_path / "new.gguf"
    kinds = write_rounded_gguf(path, out, "q8_0")
    old, new = GgufFile(path), GgufFile(out)
    assert {"Q8_0"} <= set(kinds.values()) <= {"Q8_0", "F32"}
    assert [new.kind(name) for name in new.names()] == list(kinds.values()) and new.names() == old.names()
    replaced = {"general.file_type", "general.quantization_version"}
    for key in {*old.keys(""), *new.keys("")} - replaced:
        assert new.get(key) == old.get(key) and new.types(key) == old.types(key), key
    assert new.get("general.file_type") == 7 and new.get("general.quantization_version") == 2
    for tensor in old.names():
        if kinds[tensor] == "F32":
            assert np.array_equal(old.stored(tensor).data, new.stored(tensor).data)
    assert far(SAID[name], logits_of(load_model(out, dtype="float32"))) < 2e-3


@pytest.mark.parametrize("name", MIXTURES)
def test_every_mixture(name: str, wide: Path, whole: Path, tmp_path: Path) -> None:
    out, told = tmp_path / "new.gguf", []
    kinds = write_rounded_gguf(whole, out, name, lambda done, count: told.append((done, count)))
    assert told == sorted(told) and told[-1][0] == told[-1][1] > 0
    file = GgufFile(out)
    assert {file.kind(tensor) for tensor in file.names()} == set(kinds.values()) >= {MIXTURES[name].base, "F32"}
    assert far(logits_of(load_model(wide, dtype="float32")), logits_of(load_model(out, dtype="float32"))) < FAR[name]


def test_a_directory_is_the_same_file_and_what_it_writes_is_near(wide: Path, whole: Path, tmp_path: Path) -> None:
    for source in (wide, whole):
        write_rounded_gguf(source, tmp_path / f"{source.name}.new", "q8_0")
    one, other = (tmp_path / f"{source.name}.new" for source in (wide, whole))
    assert one.read_bytes() == other.read_bytes() and set(tmp_path.iterdir()) == {one, other}
    params = SamplingParams(max_tokens=6, logprobs=1)
    one.rename(tmp_path / "one.gguf")
    results = [LLM(path, drafter="none").generate("abab", params) for path in (wide, tmp_path / "one.gguf")]
    assert results[0].token_ids == results[1].token_ids


def test_what_stands_there_is_never_replaced(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "new.gguf"
    out.write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        write_rounded_gguf(whole, out, "q8_0")
    assert out.read_text() == "mine"


def test_an_interrupted_file_is_not_there(whole: Path, tmp_path: Path) -> None:
    def interrupt(done: int, count: int) -> None:
        assert list(tmp_path.glob("new.gguf.part-*"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rounded_gguf(whole, tmp_path / "new.gguf", "q8_0", interrupt)
    assert not list(tmp_path.iterdir())


def test_rounding_twice_is_noted_and_what_has_its_type_stays(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_rounded_gguf(whole, tmp_path / "once.gguf", "q8_0")
    with caplog.at_level(logging.WARNING, "outdraft"):
        write_rounded_gguf(tmp_path / "once.gguf", tmp_path / "same.gguf", "q8_0")
        assert not caplog.text
        write_rounded_gguf(tmp_path / "once.gguf", tmp_path / "twice.gguf", "q4_0")
    assert "once.gguf: its weights (Q8_0) are rounded once more" in caplog.text
    assert (tmp_path / "once.gguf").read_bytes() == (tmp_path / "same.gguf").read_bytes()


def changed(source: Path, out: Path, arch: str = "llama", spoil: float | None = None, **keys: object) -> Path:
    """The same file of another architecture, with a first weight of another value, or with other keys."""
    file, writer = GgufFile(source), gguf.GGUFWriter(out, arch)
    for key in file.keys(""):
        kind, inner = file.types(key)
        types = gguf.GGUFValueType(kind), None if inner is None else gguf.GGUFValueType(inner)
        if key != "general.architecture":
            writer.add_key_value(key, keys.get(key.replace(".", "_"), file.get(key)), *types)
    for i, name in enumerate(file.names()):
        data = file.floats(name)
        if i == 0 and spoil is not None:
            data = data.copy()
            data[0, 0] = spoil
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


@pytest.mark.parametrize(
    "change, says",
    [
        ({"arch": "mamba"}, "architecture='mamba' is not rounded here"),
        ({"spoil": float("nan")}, "'output.weight' .* no finite number"),
        ({"spoil": 1e9}, "'output.weight' .* too large for Q8_0"),
    ],
)
def test_what_is_refused(change: dict, says: str, whole: Path, tmp_path: Path) -> None:
    source = changed(whole, tmp_path / "bad.gguf", **change)
    with pytest.raises(ModelLoadError, match=says):
        write_rounded_gguf(source, tmp_path / "new.gguf", "q8_0")
    assert set(tmp_path.iterdir()) == {source}


def test_unknown_names(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="type='q4_k_n' is not known, did you mean 'q4_k_s'"):
        write_rounded_gguf(whole, tmp_path / "new.gguf", "q4_k_n")
