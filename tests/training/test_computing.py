"""Training computes in float32 where the CPU has no instructions for bfloat16; everything follows that one decision."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lab.zoo.pretrain import NextToken
from lab.zoo.recipe import DataConfig, PretrainLoop, TextSource, TrainingRecipe
from lab.zoo.run import run_recipe
from outdraft.engine.llm import LLM
from outdraft.learn.save import load_state
from outdraft.models.files.load import load_model, save_model
from outdraft.models.networks.native import NativeDecoder
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams
from outdraft.testing.tiny import tiny_model
from outdraft.training import computing
from outdraft.training.check import check_directory
from outdraft.training.computing import choose_format, open_target
from outdraft.training.costs import served
from outdraft.training.course import prepare
from outdraft.training.lessons import Teacher
from outdraft.training.loop import CHECKPOINT
from outdraft.training.plan import make_plan
from outdraft.training.record import fingerprint
from outdraft.training.train import train
from outdraft.training.tree import measure_tree
from tests.training.toys import toy_decoder, toy_loop

CPU, GPU = torch.device("cpu"), torch.device("cuda")
FLOAT, BRAIN = torch.float32, torch.bfloat16
SOURCE = Path(__file__).parents[2] / "src"
VOCAB = 61


@pytest.fixture
def machine(monkeypatch):
    """Sets what this CPU can do."""

    def has(bfloat16: bool) -> None:
        monkeypatch.setattr(computing, "has_bfloat16", lambda: bfloat16)

    return has


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A target stored in bfloat16, a draft for it and texts."""
    place = tmp_path_factory.mktemp("scene")
    save_model(tiny_model(vocab=VOCAB, layers=2, seed=1, dtype=BRAIN), place / "target")
    save_model(tiny_model(vocab=VOCAB, layers=1, seed=5, dtype=BRAIN), place / "draft")
    texts = torch.randint(VOCAB, (40, 24), generator=torch.Generator().manual_seed(0)).tolist()
    (place / "texts.jsonl").write_text("".join(json.dumps({"token_ids": ids}) + "\n" for ids in texts))
    return place


def course_of(scene, out, kind="medusa", tell=lambda line: None, **more):
    loop = {"seq_len": 16, "batch_tokens": 64, "micro_tokens": 32, "steps": 8, "eval_every": 4}
    loop |= more.pop("loop", {})
    given = {"kind": kind, "target": str(scene / "target"), "out": str(out), "data": (str(scene / "texts.jsonl"),)}
    return prepare(make_plan({**given, "depth": 2, "loop": loop, **more}), tell)


@pytest.mark.parametrize(
    ("asked", "stored", "device", "fast", "found", "says"),
    [
        (None, BRAIN, CPU, True, BRAIN, "computes in bfloat16"),
        (None, BRAIN, CPU, False, FLOAT, "computes in float32: this CPU has no instructions for bfloat16"),
        (None, BRAIN, GPU, False, BRAIN, "computes in bfloat16"),
        (None, FLOAT, CPU, False, FLOAT, "computes in float32"),
        (BRAIN, BRAIN, CPU, True, BRAIN, "computes in bfloat16, as asked"),
        (BRAIN, BRAIN, CPU, False, BRAIN, "computes in bfloat16, as asked; this CPU has no instructions for it"),
        (FLOAT, BRAIN, CPU, True, FLOAT, "computes in float32, as asked"),
    ],
)
def test_one_place_decides_and_says_why(machine, asked, stored, device, fast, found, says):
    machine(fast)
    made = choose_format(asked, stored, device)
    assert (
        made.dtype == found
        and made.line.startswith(says)
        and ("slow" in made.line or "many" in made.line)
        == (not fast and device == CPU and BRAIN in (asked, stored) and asked != FLOAT)
    )


@pytest.mark.parametrize(
    ("kind", "fast"), [("medusa", True), ("eagle", False), ("draft_model", True), ("acceptance_head", False)]
)
def test_a_draft_trains_in_what_the_cpu_has_instructions_for(scene, tmp_path, machine, kind, fast):
    machine(fast)
    told: list[str] = []
    options = {"draft": str(scene / "draft")} if kind == "acceptance_head" else {}
    course = course_of(scene, tmp_path, kind, told.append, options=options)
    assert course.teacher.target.dtype == (BRAIN if fast else FLOAT)
    assert course.serves == BRAIN, "an engine takes the target as it is stored"
    for one in (course.teacher.computing(), course.loop.computing()):
        assert one._enabled == fast, "autocast over other weights is an error of types"
    before = {name: one.detach().clone() for name, one in course.learner.module.named_parameters()}
    record = train(course, resume=False, tell=told.append)
    after = load_state(tmp_path / "run" / CHECKPOINT).weights
    assert record["steps"] == 8 and any(not torch.equal(one, before[name]) for name, one in after.items())
    assert record["dtype"] == ("bfloat16" if fast else "float32")
    assert sum(line.startswith("computes in ") for line in told) == 1
    assert record["target"] == fingerprint(load_model(scene / "target")), "it is for the target as it is stored"


def test_what_was_trained_in_float32_drafts_for_the_target_as_it_is_stored(scene, tmp_path, machine):
    machine(False)
    train(course_of(scene, tmp_path), resume=False, tell=lambda line: None)
    prompt = [{"prompt_token_ids": [1, 2, 3]}]
    texts = [
        LLM(scene / "target", drafter={"name": name, **options})
        .generate(prompt, SamplingParams(max_tokens=12))[0]
        .token_ids
        for name, options in (("none", {}), ("medusa", {"model": str(tmp_path)}))
    ]
    assert texts[0] == texts[1]
    assert "broken" not in {one.outcome for one in check_directory(tmp_path, str(scene / "target"))}
    assert measure_tree(tmp_path, str(scene / "target"), [str(scene / "texts.jsonl")], nodes=3).guesses


def test_a_tree_is_measured_in_float32_too(scene, tmp_path, machine, monkeypatch):
    machine(True)
    train(course_of(scene, tmp_path), resume=False, tell=lambda line: None)
    machine(False)
    seen = []
    honest = Teacher.__init__

    def watched(self, target, *more):
        seen.append(target.dtype)
        honest(self, target, *more)

    monkeypatch.setattr(Teacher, "__init__", watched)
    measure_tree(tmp_path, str(scene / "target"), [str(scene / "texts.jsonl")], nodes=3)
    assert seen == [FLOAT]


@pytest.mark.parametrize("begun", ["float32", "bfloat16"])
def test_a_run_goes_on_in_its_own_format_or_not_at_all(scene, tmp_path, machine, begun):
    """On another kind of CPU it is refused, and with the format that the message names it ends with the same bits."""
    machine(begun == "bfloat16")
    course_of(scene, tmp_path / "whole").loop.run()
    course_of(scene, tmp_path / "parts").loop.run(until=3)
    machine(begun != "bfloat16")
    other = "float32" if begun == "bfloat16" else "bfloat16"
    with pytest.raises(
        ConfigError, match=f"computes in {begun}, and here it would go on in {other}.*--dtype {begun}"
    ) as caught:
        train(course_of(scene, tmp_path / "parts"), resume=True, tell=lambda line: None)
    assert ("this CPU has no instructions" in str(caught.value)) == (begun == "bfloat16")
    again = course_of(scene, tmp_path / "parts", dtype=begun)
    again.loop.resume()
    again.loop.run()
    whole, parts = (load_state(tmp_path / name / "run" / CHECKPOINT).weights for name in ("whole", "parts"))
    assert whole.keys() == parts.keys() and all(torch.equal(one, parts[name]) for name, one in whole.items())


def test_costs_are_those_of_the_engine_that_will_draft():
    target = tiny_model(vocab=VOCAB, layers=2, seed=1, dtype=FLOAT)
    Teacher(target, ())
    assert served(target, BRAIN).dtype == BRAIN and target.dtype == FLOAT
    assert not isinstance(served(target, FLOAT), NativeDecoder) and served(target, FLOAT).dtype == FLOAT


@pytest.fixture
def recipe(tmp_path):
    """Pretraining of a tiny target, its tokenizer made."""
    texts = [f"Book {i}. " + f"The cat number {i} sat on mat {i * 7}. " * 20 for i in range(40)]
    with gzip.open(tmp_path / "books.jsonl.gz", "wt") as out:
        out.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    source = TextSource(name="books", path="books.jsonl.gz", share=1, repository="", commit="", licence="")
    data = DataConfig(sources=(source,), num_copies=5, holdout_percent=20)
    words = {"vocab_size": 300, "max_len": 64}
    first = TrainingRecipe(kind="tokenizer", name="tokenizer", data=data, loop=PretrainLoop(), task=words)
    run_recipe(first, tmp_path, tmp_path / "out", lambda line: None)
    shape = dict(vocab_size=300, hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32, max_len=64)
    loop = PretrainLoop(steps=3, batch_tokens=128, micro_tokens=64, seq_len=32, warmup=1, eval_tokens=128, eval_every=2)
    return TrainingRecipe(kind="pretrain", name="target", data=data, loop=loop, model=shape)


@pytest.mark.parametrize("fast", [True, False])
def test_a_target_trains_in_what_the_cpu_has_instructions_for(recipe, tmp_path, machine, monkeypatch, fast):
    machine(fast)
    told, seen, honest = [], set(), NextToken.total

    def total(self, rows):
        seen.add(torch.is_autocast_enabled("cpu"))
        return honest(self, rows)

    monkeypatch.setattr(NextToken, "total", total)
    run_recipe(recipe, tmp_path, tmp_path / "out", told.append)
    assert seen == {fast} and [line for line in told if line.startswith("computes in")] == [
        choose_format(None, BRAIN, CPU).line
    ]
    assert load_model(tmp_path / "out/target").dtype == BRAIN, "it is stored as ever"
    machine(not fast)
    with pytest.raises(ConfigError, match=r"holds a run that computes in \w+, and here"):
        run_recipe(recipe, tmp_path, tmp_path / "out", told.append, resume=True)
    (tmp_path / "out/target/model.safetensors").unlink()
    run_recipe(recipe, tmp_path, tmp_path / "out", told.append, export_only=True)
    assert (tmp_path / "out/target/model.safetensors").exists(), "what stands is written on any machine"


def test_a_checkpoint_that_does_not_name_its_format_goes_on(tmp_path):
    loop = toy_loop(NextToken(toy_decoder()), tmp_path, steps=4)
    loop.run(until=2)
    state = torch.load(tmp_path / CHECKPOINT, weights_only=True)
    assert state["about"].pop("dtype") == "float32"
    torch.save(state, tmp_path / CHECKPOINT)
    again = toy_loop(NextToken(toy_decoder()), tmp_path, steps=4)
    again.resume()
    assert again.step == 2


def test_where_pytorch_has_no_onednn_float32_is_taken(monkeypatch):
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    assert not computing.has_bfloat16()


def test_a_cpu_held_to_avx2_is_seen_as_one(scene):
    """No patch: PyTorch itself says so."""
    words = (
        "import sys\nfrom pathlib import Path\nfrom outdraft.training.computing import open_target\n"
        "print(*open_target(Path(sys.argv[1]), 'auto', 'cpu')[1].line.split()[:3])"
    )
    limits = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run(
        [sys.executable, "-c", words, str(scene / "target")],
        env={**os.environ, **limits, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["computes", "in", "float32:"]
    assert open_target(scene / "target", "float32", "cpu")[0].dtype == FLOAT
