"""Drafts in other projects' layouts: what is written, what is refused by name, and that nothing is lost on the way."""

import json
import shlex
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from outdraft.cli.main import main, make_parser
from outdraft.core.learner_registry import find_learner, learner_names
from outdraft.engine.llm import LLM
from outdraft.models.files.load import load_model, save_model
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.testing.tiny import random_decoder
from outdraft.training.check import check_directory
from outdraft.training.convert import all_formats, convert
from outdraft.training.lessons import Teacher
from outdraft.training.record import RECORD, fingerprint, write_record
from tests.helpers.tiny_families import tiny_config

from .toys import lesson_rows, rows

KINDS = sorted({kind for kind, _ in all_formats()})


@pytest.fixture
def target(tmp_path: Path) -> str:
    save_model(random_decoder(tiny_config(layers=3), dtype=torch.float32), tmp_path / "target")
    (tmp_path / "target/tokenizer.json").write_text("{}")
    return str(tmp_path / "target")


def draft_of(kind: str, target: str, directory: Path, **options: object) -> str:
    method = find_learner(kind)
    learner = method.new(method.options(**options), load_model(target), 0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in learner.module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    learner.save(directory)
    return str(directory)


# layouts that do not take every draft of the kind: each has a test of its own
NARROW = {"vllm": "eagle1", "deepseek": "mtp"}


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_nothing_changes(kind: str, target: str, tmp_path: Path):
    """Through every layout that the kind has, to the bit; and each says who serves it."""
    draft, formats = draft_of(kind, target, tmp_path / "draft"), find_learner(kind).formats
    own = (tmp_path / "draft/model.safetensors").read_bytes()
    home = next(one.name for one in formats if one.matches(Path(draft)))
    for one in formats:
        if NARROW.get(one.name) == kind or one.write is None:
            continue
        there, back = tmp_path / f"there-{one.name}", tmp_path / f"back-{one.name}"
        assert convert(draft, one.name, target, there).kind == kind
        assert convert(str(there), home, target, back).written_as == home
        assert (back / "model.safetensors").read_bytes() == own
        for server, line in one.served.items():
            told = convert(draft, server, target, tmp_path / f"to-{one.name}-{server}")
            said = line.replace("{target}", target).replace("{out}", str(tmp_path / f"to-{one.name}-{server}"))
            assert told.lines[server] == said and "{" not in said.partition("'")[0]


@pytest.mark.parametrize(
    ("kind", "to", "narrow"),
    [
        ("dflash", "z-lab", "fc.weight"),
        ("eagle1", "eagle", "fc.bias"),
        ("eagle3", "eagle", "norm.weight"),
        ("mtp", "speculators", "mtp_layers.0.final_layernorm.weight"),
        ("medusa", "medusa", "0.1.weight"),
        ("hydra", "hydra", "hydra_lm_head.0.weight"),
    ],
)
def test_numbers_of_several_formats_are_written_in_the_widest(
    kind: str, to: str, narrow: str, target: str, tmp_path: Path
):
    draft = draft_of(kind, target, tmp_path / "draft")
    home = next(one.name for one in find_learner(kind).formats if one.matches(Path(draft)))
    convert(draft, to, target, tmp_path / "there")
    (file,) = (tmp_path / "there").glob("*.safetensors")
    tensors = load_file(file)
    tensors[narrow] = tensors[narrow].bfloat16()
    save_file(tensors, file)
    convert(str(tmp_path / "there"), home, target, tmp_path / "back")
    convert(str(tmp_path / "back"), to, target, tmp_path / "again")
    again = load_file(tmp_path / "again" / file.name)
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name].double(), one.double()) for name, one in tensors.items())


@pytest.mark.parametrize("bias", [True, False])
def test_an_eagle1_draft_has_the_bias_that_its_server_reads(bias: bool, target: str, tmp_path: Path):
    """vLLM's joining layer has none, and SGLang's always has one: what the file lacks is left as memory was."""
    draft = draft_of("eagle1", target, tmp_path / "draft", bias=bias)
    own = load_file(tmp_path / "draft/model.safetensors")
    assert ("fc.bias" in own) is bias
    convert(draft, "sglang", target, tmp_path / "sglang")
    made = load_file(tmp_path / "sglang/model.safetensors")
    assert made.keys() == own.keys() | {"fc.bias"} and all(torch.equal(made[name], own[name]) for name in own)
    assert bias or not made["fc.bias"].any()
    assert json.loads((tmp_path / "sglang/config.json").read_text())["bias"] is True
    if bias:
        with pytest.raises(CapabilityError, match=r"has a bias .* vLLM's EAGLE network has none: train one without it"):
            convert(draft, "vllm", target, tmp_path / "vllm")
        assert not (tmp_path / "vllm").exists()
        return
    told = convert(draft, "vllm", target, tmp_path / "vllm")
    made = load_file(tmp_path / "vllm/model.safetensors")
    assert made.keys() == own.keys() and all(torch.equal(made[name], own[name]) for name in own)
    assert json.loads((tmp_path / "vllm/config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    assert '"method": "eagle"' in told.lines["vllm"] and str(tmp_path / "vllm") in told.lines["vllm"]
    assert convert(str(tmp_path / "vllm"), "eagle", target, tmp_path / "again").read_as == "eagle"


@pytest.mark.parametrize(
    ("kind", "to"), [("eagle1", "sglang"), ("eagle3", "eagle"), ("mtp", "speculators"), ("medusa", "medusa")]
)
def test_what_was_promised_of_a_draft_is_checked_in_the_other_layout(kind: str, to: str, tmp_path: Path):
    decoder, target = random_decoder(tiny_config(layers=3), dtype=torch.float32), str(tmp_path / "target")
    save_model(decoder, tmp_path / "target")
    draft = draft_of(kind, target, tmp_path / "draft")
    assert "has no training.json" in convert(draft, to, target, tmp_path / "unpromised").checks
    assert not (tmp_path / "unpromised" / RECORD).exists()
    promised = {
        "terms": {"prompts": [[1, 2, 3], [4, 5]], "max_tokens": 8, "depth": 2, "temperature": 0.0},
        "tau": 1.5,
        "standard_error": 0.1,
        "conditional": [0.5, 0.5],
    }
    told = {"kind": kind, "dtype": "float32", "target": fingerprint(load_model(target)), "promises": [promised]}
    write_record(tmp_path / "draft", told)
    found = convert(draft, to, target, tmp_path / "there")
    assert found.checks == f"next: outdraft train check {tmp_path / 'there'} --target {target}"
    there, here = (
        [one.told() for one in check_directory(Path(place), target)] for place in (tmp_path / "there", draft)
    )
    assert there == here and here[0]["rounds"] > 0


def test_who_cannot_serve_a_kind_is_said(target: str, tmp_path: Path):
    draft = draft_of("medusa", target, tmp_path / "draft")
    with pytest.raises(CapabilityError, match="vllm has no layout for a draft of the kind medusa; there is: medusa"):
        convert(draft, "vllm", target, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_kinds_of_our_own_layout_are_known(target: str, tmp_path: Path):
    for kind in set(learner_names()) - set(KINDS):
        if find_learner(kind).model_type is None:  # its files are another kind's
            continue
        draft = draft_of(kind, target, tmp_path / kind)
        with pytest.raises(CapabilityError, match=f"kind {kind}; there is: nothing but our own layout"):
            convert(draft, "vllm", target, tmp_path / "out")


def test_bad_words_are_named(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    draft = draft_of("medusa", target, tmp_path / "draft")
    with pytest.raises(ConfigError, match="--to medus is no layout or server, did you mean 'medusa'"):
        convert(draft, "medus", target, tmp_path / "out")
    with pytest.raises(ConfigError, match="exists: name a new directory"):
        convert(draft, "medusa", target, tmp_path / "draft")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no draft in a layout that outdraft reads"):
        convert(str(tmp_path / "empty"), "medusa", target, tmp_path / "out")
    assert main(["convert", draft, "--to", "medusa"]) == 2
    assert "convert needs target, out" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["file/out", "link"])
def test_a_place_that_cannot_be_written_is_named(place: str, target: str, tmp_path: Path):
    draft = draft_of("medusa", target, tmp_path / "draft")
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=f"--out .*/{place} cannot be written .*: name another directory"):
        convert(draft, "medusa", target, tmp_path / place)


@pytest.mark.parametrize("place", ["a dir", "it's", 'a "b"'])
def test_lines_are_quoted_as_a_shell_reads_them(place: str, target: str, tmp_path: Path):
    draft, out = draft_of("eagle1", target, tmp_path / "draft", bias=False), tmp_path / place
    lines = convert(draft, "vllm", target, out).lines
    assert json.loads(shlex.split(lines["vllm"])[-1])["model"] == str(out)
    lines = convert(draft, "sglang", target, tmp_path / f"{place}2").lines
    assert f"{out}2" in shlex.split(lines["sglang"]) and f"model={out}2" in shlex.split(lines["outdraft"])


def test_the_command_tells_what_it_wrote(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    draft = draft_of("medusa", target, tmp_path / "draft")
    words = ["convert", draft, "--target", target, "--to", "medusa", "--out", str(tmp_path / "out"), "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["read_as"], told["written_as"]) == ("medusa", "outdraft", "medusa")
    assert json.loads((tmp_path / "out/config.json").read_text())["base_model_name_or_path"] == target


@pytest.mark.parametrize(("kind", "to"), [("eagle3", "eagle"), ("dflash", "z-lab")])
def test_the_command_says_which_states_are_read_in_both_spellings(
    kind: str, to: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    draft = draft_of(kind, target, tmp_path / "draft", taps=(0, 2, 3))
    assert main(["convert", draft, "--target", target, "--to", to, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out.splitlines()
    line = (
        "reads the target's states after [0, 2, 3] layers (the outputs of layers [-1, 1, 2], counted from 0; "
        "-1: its embeddings)"
    )
    assert line in said
    assert said[-1].startswith("it has no training.json")


def test_the_line_that_serves_a_draft_here_is_understood():
    lines = [one.served["outdraft"] for _, one in all_formats() if "outdraft" in one.served]
    assert len(lines) > 3
    for line in lines:
        words = shlex.split(line.replace("{target}", "TARGET").replace("{out}", "OUT"))
        given, unknown = make_parser().parse_known_args(words[1:])
        assert not unknown and (given.command, given.model) == ("generate", "TARGET"), line


@pytest.mark.parametrize("kind", ["medusa", "hydra"])
def test_heads_that_use_their_targets_head_keep_its_scale(kind: str, tmp_path: Path):
    """Granite divides its logits; Gemma 2 caps them, which the published projections cannot."""
    method = find_learner(kind)
    for family in ("granite", "gemma2"):
        target = str(tmp_path / family)
        save_model(random_decoder(tiny_config(family, layers=3), dtype=torch.float32), Path(target))
        draft_of(kind, target, tmp_path / f"{family}-draft", own_projections=False)
    assert load_model(tmp_path / "granite").config.logit_scale != 1
    convert(str(tmp_path / "granite-draft"), kind, str(tmp_path / "granite"), tmp_path / "out")
    said = []
    for place in ("granite-draft", "out"):
        learner = method.load(method.options(), load_model(tmp_path / "granite"), tmp_path / place)
        with torch.no_grad():
            lesson = Teacher(load_model(tmp_path / "granite"), learner.taps).lesson(lesson_rows(rows(2)))
            said.append([guess.head(guess.states) for guess in learner.look(lesson).guesses])
    torch.testing.assert_close(said[1], said[0])
    with pytest.raises(CapabilityError, match=r"caps its logits \(logit_cap=.*own_projections=true"):
        convert(str(tmp_path / "gemma2-draft"), kind, str(tmp_path / "gemma2"), tmp_path / "capped")
    assert not (tmp_path / "capped").exists()


@pytest.mark.parametrize("to", ["medusa", "outdraft"])
def test_heads_whose_target_learned_along_are_still_for_that_one_alone(to: str, target: str, tmp_path: Path):
    (tmp_path / "target/tokenizer.json").unlink()  # it is none
    draft, out = draft_of("medusa", target, tmp_path / "draft", joint=True), tmp_path / "out"
    convert(draft, to, f"{draft}/target", out)
    LLM(f"{draft}/target", drafter={"name": "medusa", "model": str(out)})
    with pytest.raises(CapabilityError, match="were trained together with their target"):
        LLM(target, drafter={"name": "medusa", "model": str(out)})
