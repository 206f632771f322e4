"""Two workers under `torchrun` learn what one does, and go on with the same bits after they were stopped."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from outdraft.learn.save import load_state
from outdraft.models.files.load import save_model
from outdraft.testing.tiny import tiny_model

pytestmark = pytest.mark.slow
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    place = tmp_path_factory.mktemp("team")
    save_model(tiny_model(vocab=61, layers=2, seed=1, dtype=torch.float32), place / "target")
    save_model(tiny_model(vocab=61, layers=1, seed=5, dtype=torch.float32), place / "draft")
    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(61, (40, 24), generator=generator).tolist()
    (place / "texts.jsonl").write_text("".join(json.dumps({"token_ids": ids}) + "\n" for ids in texts))
    return place


JOINT = "medusa with joint"  # the target learns along, from a step on


def command(place: Path, out: str, kind: str, workers: int, *more: str) -> list[str]:
    together = ["-m", "torch.distributed.run", "--nproc-per-node", str(workers)] if workers > 1 else []
    of = {
        "acceptance_head": ["--options", f"draft={place / 'draft'}"],
        JOINT: ["--options", "joint=true", "--options", "num_heads=2"],
    }.get(kind, [])
    words = [
        "train",
        kind.split()[0],
        *of,
        "--target",
        place / "target",
        "--data",
        place / "texts.jsonl",
        "--out",
        place / out,
        "--loop",
        "seq_len=16",
        "--loop",
        "batch_tokens=64",
        "--loop",
        "micro_tokens=16",
        "--loop",
        "steps=30",
        "--loop",
        "save_every=1",
        "--loop",
        "eval_every=7",
        *more,
    ]
    return [sys.executable, *together, "-m", "outdraft.cli.main", *map(str, words)]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}


def train(place: Path, *about: str | int) -> dict[str, torch.Tensor]:
    """To the end; the weights in the run's checkpoint."""
    done = subprocess.run(command(place, *about), env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return weights_of(place / about[0])


def weights_of(out: Path) -> dict[str, torch.Tensor]:
    """As the last checkpoint has them, whole or from its parts."""
    state = load_state(out / "run/checkpoint.pt")
    if not state.shards:
        return state.weights
    with tempfile.TemporaryDirectory() as place:
        dcp_to_torch_save(out / "run" / state.shards, f"{place}/whole.pt")
        held = torch.load(f"{place}/whole.pt", weights_only=True)
    return {name.removeprefix("weights."): one for name, one in held.items() if name.startswith("weights.")}


def below(process: int) -> list[int]:
    """The children of a process, and theirs."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = dict(tuple(map(int, line.split())) for line in listed.splitlines())
    found, new = [], [process]
    while new:
        new = [one for one, parent in parents.items() if parent in new]
        found += new
    return found


def kill_at_random(place: Path, rng: random.Random, *about: str | int) -> None:
    """Begin, or go on, and be killed a moment after another checkpoint was written."""
    checkpoint = place / about[0] / "run/checkpoint.pt"
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
    running = subprocess.Popen(
        command(place, *about),
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while running.poll() is None and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before):
        time.sleep(0.01)
    time.sleep(rng.random() * 0.2)
    for process in [running.pid, *below(running.pid)]:  # workers have sessions of their own and outlive their launcher
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    running.wait()


@pytest.mark.parametrize("kind", ["draft_model", "acceptance_head", JOINT])
def test_two_workers_are_one(scene, kind):
    one, two = train(scene, f"one-{kind}", kind, 1), train(scene, f"two-{kind}", kind, 2)
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, atol=2e-3, rtol=2e-2)
    if kind == JOINT:
        assert any(name.startswith("lora") and name.endswith(".b") and weight.any() for name, weight in two.items())
    assert (scene / f"two-{kind}/training.json").exists()


SHARDED = ("--parallel", "fully_shard")


@pytest.mark.parametrize("more", [(), ("--loop", "muon_lr=0")])
def test_two_workers_that_share_the_parameters_are_one(scene, more):
    name = f"shard{len(more)}"
    one = train(scene, f"one-{name}", "draft_model", 1, *more)
    two = train(scene, f"two-{name}", "draft_model", 2, *SHARDED, *more)
    assert one.keys() == two.keys()
    for key, weight in one.items():
        torch.testing.assert_close(two[key], weight, atol=2e-3, rtol=2e-2)
    promised = [json.loads((scene / f"{n}-{name}/training.json").read_text())["promises"] for n in ("one", "two")]
    for ours, theirs in zip(*promised, strict=True):
        assert ours["tau"] == pytest.approx(theirs["tau"], rel=0.02)
    left = [place.name for place in (scene / f"two-{name}/run").glob("shards-*")]
    assert left == ["shards-30"]


def test_a_sharded_run_that_is_killed_ends_with_the_same_bits(scene):
    kind = "draft_model"
    rng = random.Random(f"shard{kind}")
    whole = train(scene, f"whole-shard-{kind}", kind, 2, *SHARDED)
    name, steps = f"killed-shard-{kind}", []
    for kill in range(2):
        kill_at_random(scene, rng, name, kind, 2, *SHARDED, *(["--resume"] if kill else []))
        steps.append(load_state(scene / name / "run/checkpoint.pt").progress.step)
    parts = train(scene, name, kind, 2, *SHARDED, "--resume")
    assert steps == sorted(steps) and steps[0] < 30
    assert all(torch.equal(parts[weight], one) for weight, one in whole.items())


@pytest.mark.parametrize(
    ("kind", "workers"), [("draft_model", 1), ("eagle", 2), ("medusa", 1), ("acceptance_head", 2), (JOINT, 2)]
)
def test_a_run_that_is_killed_ends_with_the_same_bits(scene, kind, workers):
    """Three kills at random moments: between steps, in one, or while a checkpoint is written."""
    rng = random.Random(f"{kind}{workers}")
    whole = train(scene, f"whole-{kind}{workers}", kind, workers)
    name = f"killed-{kind}{workers}"
    steps = []
    for kill in range(3):
        kill_at_random(scene, rng, name, kind, workers, *(["--resume"] if kill else []))
        steps.append(load_state(scene / name / "run/checkpoint.pt").progress.step)
    parts = train(scene, name, kind, workers, "--resume")
    assert steps == sorted(steps) and steps[0] < 30
    assert all(torch.equal(parts[weight], one) for weight, one in whole.items())
