"""What goes wrong in practice: one clear error each, by the command line, and nothing that was there is lost."""

import gzip
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from outdraft.cli.main import main
from outdraft.models.files.load import save_model
from outdraft.testing.tiny import tiny_model
from tests.cli.conftest import VOCAB

LOOP = ("--loop", "seq_len=16", "--loop", "batch_tokens=32", "--loop", "micro_tokens=16", "--loop", "steps=2")
IDS = [[(7 * i + 3 * j) % VOCAB for j in range(20)] for i in range(30)]


@pytest.fixture(scope="module")
def places(tmp_path_factory, tiny):
    """A target, another one, texts of every kind, and a draft trained for the first."""
    root = tmp_path_factory.mktemp("bad")
    shutil.copytree(tiny, root / "target")
    shutil.copytree(tiny, root / "other")
    save_model(tiny_model("llama", vocab=VOCAB, seed=4, dtype=torch.float32), root / "other")
    shutil.copytree(tiny, root / "nan")
    weights = load_file(root / "nan/model.safetensors")
    name = next(name for name in weights if "down_proj" in name)
    save_file({**weights, name: weights[name] * 1e38}, root / "nan/model.safetensors", {"format": "pt"})
    shutil.copytree(tiny, root / "half")
    whole = (root / "half/model.safetensors").read_bytes()
    (root / "half/model.safetensors").write_bytes(whole[: len(whole) // 2])
    lines = "".join(json.dumps({"token_ids": ids}) + "\n" for ids in IDS)
    (root / "x.jsonl").write_text(lines)
    (root / "half.jsonl").write_text(lines[: len(lines) // 2])
    packed = gzip.compress(lines.encode())
    (root / "half.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (root / "half.parquet").write_bytes(b"PAR1" + b"\x00" * 40)
    (root / "empty.jsonl").write_text("")
    (root / "one.jsonl").write_text('{"token_ids": [5]}\n')
    (root / "plan.toml").write_text("[loop]\nbatch_token = 3\n")
    return root


@pytest.fixture(scope="module")
def trained(places):
    """OUT/: an EAGLE head of the target, with its cache of states."""
    words = [
        "train",
        "eagle",
        "--target",
        places / "target",
        "--data",
        places / "x.jsonl",
        "--out",
        places / "draft",
        *LOOP,
        "--cache-bytes",
        1 << 22,
        "--cache-dir",
        places / "states",
        "--options",
        "taps=[0,1]",
    ]
    assert main([str(word) for word in words]) == 0
    shutil.copytree(places / "draft", places / "published", ignore=shutil.ignore_patterns("run"))
    shutil.copytree(places / "draft", places / "cut")
    whole = (places / "cut/run/checkpoint.pt").read_bytes()
    (places / "cut/run/checkpoint.pt").write_bytes(whole[:1000])
    return places


NEW = ("--target", "AT/target", "--data", "AT/x.jsonl", "--out", "OUT")
CASES = {
    "wrong target, checked": (("check", "AT/draft", "--target", "AT/other"), "was trained for another target"),
    "wrong target, resumed": (
        (
            "eagle",
            "--target",
            "AT/other",
            "--data",
            "AT/x.jsonl",
            "--out",
            "AT/draft",
            "--options",
            "taps=[0,1]",
            "--resume",
        ),
        "holds a run with target=",
    ),
    "half a checkpoint, resumed": (
        ("eagle", *NEW[:4], "--out", "AT/cut", "--options", "taps=[0,1]", "--resume"),
        "is cut short or damaged",
    ),
    "a finished draft in the way": (("eagle", *NEW[:4], "--out", "AT/published"), "which training would write over"),
    "a target in the way": (("eagle", *NEW[:4], "--out", "AT/target"), "that the training reads from"),
    "an empty data set to answer": (
        ("answers", *NEW[:2], "--data", "AT/empty.jsonl", "--out", "OUT.jsonl"),
        "there is no example to answer",
    ),
    "other settings, resumed": (
        ("eagle", *NEW[:4], "--out", "AT/draft", "--options", "taps=[0,1]", "--resume", "--loop", "lr=0.5"),
        "holds a run with lr=0.002, not 0.5",
    ),
    "a flag that a check does not read": (
        ("check", "AT/draft", "--target", "AT/target", "--nodes", "5"),
        "train check does not take --nodes",
    ),
    "a flag that training does not read": (
        ("eagle", *NEW, "--max-tokens", "5"),
        "train eagle does not take --max-tokens",
    ),
    "a loss for a kind that has its own": (("ctc", *NEW, "--loss", "total_variation=1"), "learns by a loss of its own"),
    "heads that cannot share their keys": (
        ("mtp", *NEW, "--options", "num_heads=3", "--options", "num_kv_heads=2"),
        "the first must be a multiple",
    ),
    "wrong taps": (("eagle", *NEW, "--options", "taps=[0,9]"), "tap"),
    "wrong taps, continued": (
        ("eagle", *NEW, "--init", "AT/draft", "--options", "taps=[0,2]"),
        "of another shape than taps=[0, 2]:",
    ),
    "another shape, continued": (
        ("eagle", *NEW, "--init", "AT/draft", "--options", "taps=[0,1]", "--options", "intermediate_size=8"),
        "of another shape than intermediate_size=8:",
    ),
    "NaN states": (
        ("eagle", "--target", "AT/nan", "--data", "AT/x.jsonl", "--out", "OUT"),
        "overflow in their number format",
    ),
    "a cache of another target": (
        (
            "eagle",
            "--target",
            "AT/other",
            "--data",
            "AT/x.jsonl",
            "--out",
            "OUT",
            "--options",
            "taps=[0,1]",
            "--cache-bytes",
            "9999999",
            "--cache-dir",
            "AT/states",
        ),
        "caches the states of another run: target is",
    ),
    "an unknown key": (("eagle", *NEW, "--loop", "batch_token=3"), "did you mean 'batch_tokens'"),
    "an unknown key of a plan": (("eagle", *NEW, "--plan", "AT/plan.toml"), "did you mean 'batch_tokens'"),
    "the plan by its earlier name": (("eagle", *NEW, "--recipe", "AT/plan.toml"), "here it is called --plan"),
    "short rows at the end": (("eagle", *NEW, "--loop", "final_seq_len=3"), "a row needs at least 4 tokens"),
    "a seed of the loop": (("eagle", *NEW, "--loop", "seed=7"), "the loop takes no seed=7 of its own: give the plan's"),
    "tokens beside steps": (("eagle", *NEW, "--tokens", "100"), "tokens=100, steps=2: each says how long the run is"),
    "settings of a loss that is not asked for": (
        ("eagle", *NEW, "--reinforce", "window=3"),
        "of the loss reinforce, which is not asked for",
    ),
    "no finite gradient": (("eagle", *NEW, "--loss", "reverse_kl=1e38"), "not a finite number in any of 2 steps"),
    "an unknown option": (("eagle", *NEW, "--options", "tap=1"), "did you mean 'taps'"),
    "an interrupted download of weights": (("eagle", "--target", "AT/half", *NEW[2:]), "model.safetensors"),
    "an interrupted download of lines": (
        ("eagle", *NEW[:2], "--data", "AT/half.jsonl", "--out", "OUT"),
        "is not JSON (",
    ),
    "an interrupted download of packed lines": (
        ("eagle", *NEW[:2], "--data", "AT/half.jsonl.gz", "--out", "OUT"),
        "half.jsonl.gz",
    ),
    "an interrupted download of a table": (
        ("eagle", *NEW[:2], "--data", "AT/half.parquet", "--out", "OUT"),
        "half.parquet",
    ),
    "an empty data set": (("eagle", *NEW[:2], "--data", "AT/empty.jsonl", "--out", "OUT"), "no example in it"),
    "a data set of one token": (("eagle", *NEW[:2], "--data", "AT/one.jsonl", "--out", "OUT"), "1 are too short"),
    "nothing left to judge on": (
        ("eagle", *NEW[:2], "--data", "AT/x.jsonl", "--valid", "AT/one.jsonl", "--out", "OUT"),
        "too short",
    ),
}


def test_a_draft_that_learned_another_template_is_refused(outdraft, trained, tmp_path):
    place = tmp_path / "target"
    shutil.copytree(trained / "target", place)
    (place / "chat_template.jinja").write_text("{% for m in messages %}<|x|>{{ m['content'] }}{% endfor %}")
    ran = outdraft("train", "check", trained / "draft", "--target", place)
    assert ran.code == 2 and "another template" in ran.err, ran.err + ran.out
    assert outdraft("train", "check", trained / "draft", "--target", trained / "target").code == 3  # few rounds


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_clear_error_and_nothing_is_lost(outdraft, trained, tmp_path, case):
    words, says = CASES[case]
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    given = [word.replace("AT/", f"{trained}/").replace("OUT", str(tmp_path / "out")) for word in words]
    ran = outdraft("train", *given, *(() if words[0] in ("check", "answers") or "--plan" in words else LOOP))
    assert ran.code == 2, ran.err
    last = ran.err.strip().splitlines()
    assert says in " ".join(" ".join(last).split()), ran.err
    assert "Traceback" not in ran.err and sum(line.startswith("outdraft train: ") for line in last) == 1, ran.err
    assert not (tmp_path / "out/model.safetensors").exists() and not (tmp_path / "out.jsonl").exists()
    assert before == {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}


def test_a_draft_is_converted_for_its_own_target_alone(outdraft, places, tmp_path):
    """Another one of the same shape would fit, and accept nothing."""
    of = ("--target", places / "target")
    assert (
        outdraft(
            "train",
            "eagle3",
            *of,
            "--data",
            places / "x.jsonl",
            "--out",
            tmp_path / "draft",
            *LOOP,
            "--options",
            "taps=[0,1]",
        ).code
        == 0
    )
    words = ("convert", tmp_path / "draft", "--to", "vllm", "--out", tmp_path / "out")
    ran = outdraft(*words, "--target", places / "other")
    assert ran.code == 2 and "was trained for another target" in ran.err and "Traceback" not in ran.err, ran.err
    assert not (tmp_path / "out").exists()
    assert outdraft(*words, *of).code == 0
