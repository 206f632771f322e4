"""`outdraft quantize`: what it writes, what it says, and that the result decodes like any model."""

import json
import os
from pathlib import Path

import pytest
from warm import started

from outdraft import LLM, SamplingParams
from outdraft.models.files.load import load_model


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 12)
    return path


def test_the_report_and_the_model(outdraft, tiny: Path, text: Path, tmp_path: Path):
    out = tmp_path / "small"
    ran = outdraft(
        "quantize",
        tiny,
        "--out",
        out,
        "--bits",
        8,
        "--group-size",
        0,
        "--head",
        "--calibration",
        text,
        "--windows",
        8,
        "--json",
    )
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert report["variant"] == "int8" and report["bytes_after"] < report["bytes_before"]
    assert report["divergence"]["num_tokens"] > 100 and 0 < report["divergence"]["kl"] < 0.5
    assert report["native_divergence"] is None  # this model is float32
    assert (out / "tokenizer.json").is_file() and not list(tmp_path.glob(".small*"))
    plain = LLM(str(out), drafter="none")
    assert plain.config["variant"] == "int8" and plain.config["model"] == "small"
    drafted = plain.with_drafter("ngram")
    for prompt in ("abcabcabc", "the fox the fox the"):
        for params in (SamplingParams(max_tokens=24), SamplingParams(max_tokens=24, temperature=0.9, seed=1)):
            assert plain.generate(prompt, params).token_ids == drafted.generate(prompt, params).token_ids


def test_a_text_to_learn_from(outdraft, tiny: Path, text: Path, tmp_path: Path):
    ran = outdraft(
        "quantize",
        tiny,
        "--out",
        tmp_path / "small",
        "--keep",
        "*.down",
        "--method",
        "gptq",
        "--calibration",
        text,
        "--json",
    )
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["variant"] == "int4-g32-gptq-mixed"
    assert LLM(str(tmp_path / "small")).config["variant"] == "int4-g32-gptq-mixed"


def test_the_plain_words(outdraft, tiny: Path, tmp_path: Path):
    ran = outdraft(
        "quantize", tiny, "--out", tmp_path / "deep" / "small", "--keep", "*.down", "--layer-bits", "*.out=8"
    )
    assert ran.code == 0, ran.err
    assert load_model(tmp_path / "deep" / "small").config.quant.layer_bits == (("*.out", 8),)
    assert "int4-g32" in ran.out and "MB ->" in ran.out and "\x1b" not in ran.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "needs a model and a new directory"),
        (("--out", "HERE"), "exists already"),
        (("--out", "HERE/new", "--bits", "3"), "bits=3"),
        (("--out", "HERE/new"), "group_size=32 does not divide the 48 inputs of layers.0.down"),
        (("--out", "HERE/new", "--keep", "lm_haed"), "did you mean 'lm_head'"),
        (("--out", "HERE/new", "--layer-bits", "*.dwn=8"), "layer_bits='*.dwn' names no linear map"),
        (("--out", "HERE/new", "--layer-bits", "*.down=2"), "layer_bits *.down=2"),
        (("--out", "HERE/new", "--method", "gptq"), "--calibration FILE"),
        (("--out", "HERE/new", "--keep", "*.down", "--calibration", "HERE/none.txt"), "none.txt"),
        (("--out", "HERE/new", "--calibration", "HERE/short.txt"), "short.txt"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(outdraft, tiny: Path, tmp_path: Path, words, says):
    (tmp_path / "short.txt").write_text("too short")
    ran = outdraft("quantize", tiny, *(word.replace("HERE", str(tmp_path)) for word in words))
    assert ran.code == 2 and ran.out == "" and ran.err.count("\n") == 1
    assert says in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["short.txt"]


FULL_DISK = """
import resource, sys
from outdraft.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sys.exit(main(sys.argv[1:]))
"""


def test_a_full_disk_is_one_line_and_leaves_nothing(tiny: Path, tmp_path: Path):
    with started(FULL_DISK, "quantize", tiny, "--out", tmp_path / "small", "--keep", "*.down") as ran:
        code, _, err = ran.whole()
    assert code == 2 and err.count("\n") == 1, err
    assert "cannot be written" in err and "free space" in err
    assert not list(tmp_path.iterdir())


def test_others_may_read_the_model(outdraft, tiny: Path, tmp_path: Path):
    before = os.umask(0o022)
    try:
        ran = outdraft("quantize", tiny, "--out", tmp_path / "small", "--keep", "*.down")
    finally:
        os.umask(before)
    assert ran.code == 0, ran.err
    files = [path for path in (tmp_path / "small").iterdir() if path.name != "tokenizer.json"]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o644}


def test_a_gguf_file(outdraft, tmp_path: Path):
    pytest.importorskip("gguf")
    source, out = Path(__file__).parents[1] / "models/converted/llama.gguf", tmp_path / "small.gguf"
    told = outdraft("quantize", source, "--type", "q8_0", "--out", out)
    assert told.code == 0 and "(q8_0: 30 Q8_0, 9 F32)" in told.out and "MB ->" in told.out, told.err
    again = outdraft("quantize", out, "--type", "q4_0", "--out", tmp_path / "smaller.gguf", "--json")
    report = json.loads(again.out)
    assert report["type"] == "q4_0" and report["tensors"] == {"Q4_0": 29, "F32": 9, "Q8_0": 1}
    assert report["bytes_after"] == (tmp_path / "smaller.gguf").stat().st_size < report["bytes_before"]
    assert load_model(out).config.variant == "gguf-q8_0"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--type", "q4_m"), "type='q4_m' is not known, did you mean 'q4_k_m'"),
        (("--type", "q4_0", "--bits", "8"), "--bits is for a directory"),
        (("--type", "q4_0", "--keep", "lm_head"), "--keep is for a directory"),
    ],
)
def test_a_gguf_file_that_is_not_written(outdraft, tiny: Path, tmp_path: Path, words: tuple[str, ...], says: str):
    ran = outdraft("quantize", tiny, "--out", tmp_path / "new.gguf", *words)
    assert ran.code == 2 and says in ran.err and not list(tmp_path.iterdir())
