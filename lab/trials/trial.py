"""A trial: its file, what each arm trains, and the runs that are lacking. `python -m lab.trials` carries it out.

The rate is chosen on the texts `tune`, the figures are of the texts `test`. A run that is in DIR/trial.jsonl is not run
again, and is refused where its arm has other settings or texts by now; one that was interrupted goes on. Several
processes may share DIR: each takes runs that no other has under way.
"""

import fcntl
import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from lab.trials.table import TAU, Claim, Run, chosen
from outdraft.core.learner import AssessedLearner
from outdraft.core.registry import read_options
from outdraft.models.files.load_codec import load_codec
from outdraft.options.errors import ConfigError
from outdraft.training.corpus import TrainingCorpus, open_corpus
from outdraft.training.course import Course, prepare
from outdraft.training.draft import Exam
from outdraft.training.examples import find_files
from outdraft.training.loop import CHECKPOINT
from outdraft.training.packing import example_rows
from outdraft.training.plan import make_plan, read_plan
from outdraft.training.promise import promises
from outdraft.training.record import write_record
from outdraft.training.train import make_record, save_draft
from outdraft.weights.digest import digest_weights
from outdraft.weights.hub import resolve

RECORD = "trial.jsonl"
_ELSEWHERE = ("device", "cache_bytes", "cache_dir", "tensorboard")  # of a plan: they change no figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The file. `arms`: of each the keys of a plan."""

    target: str
    data: tuple[str, ...]
    tune: tuple[str, ...]
    test: tuple[str, ...]
    tokens: int
    arms: Mapping[str, Any]
    rates: tuple[float, ...] = (1.0,)
    seeds: tuple[int, ...] = (0,)
    tuned_on: int = 0
    depth: int = 4
    texts: int = 256  # of tune and of test that are looked at
    promises: int = 0  # texts about which each draft promises something, for `outdraft train check`; 0: nothing
    loop: Mapping[str, Any] = field(default_factory=dict)
    claims: tuple[Any, ...] = ()


def read_trial(path: Path) -> Trial:
    """Raises `ConfigError` for keys and measures that are not known. Paths are relative to where the program runs."""
    given = read_plan(path)
    lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
    trial = read_options(Trial, {**given, **lists}, str(path))
    for claim in claims_of(trial):
        for name in (claim.better, claim.worse):
            if name not in trial.arms:
                raise ConfigError(f"{path}: the claim {claim.says!r} names the arm {name!r}, which is not there")
        if claim.depths and claim.depths[-1] > trial.depth:
            raise ConfigError(f"{path}: the claim {claim.says!r} measures {claim.measure}, and depth={trial.depth}")
    return trial


def claims_of(trial: Trial) -> list[Claim]:
    """The claims of a trial as options. Raises `ConfigError` for a key that a claim does not have."""
    return [read_options(Claim, dict(one), "a claim") for one in trial.claims]


def rates_for(trial: Trial, name: str, seed: int, runs: Seq[Run]) -> Seq[float]:
    """Which rates this seed takes: all of them, or those that some figure of this arm chose with the seeds before."""
    if not trial.tuned_on or seed in trial.seeds[: trial.tuned_on]:
        return trial.rates
    asked = [claim for claim in claims_of(trial) if name in (claim.better, claim.worse)]
    best = {chosen(runs, name, claim)[0].rate for claim in [TAU, *asked]}
    return [rate for rate in trial.rates if rate in best]


def lacking(trial: Trial, arms: Seq[str], runs: Seq[Run]) -> list[tuple[str, float, int]]:
    """Arm, rate and seed of what is not run yet; an arm whose rate is not chosen yet has one rate with later seeds."""
    done = {(run.arm, run.rate, run.seed) for run in runs}
    known = {run.arm for run in runs}
    wanted = []
    for seed in trial.seeds:
        for name in arms:
            chosen_later = trial.tuned_on and seed not in trial.seeds[: trial.tuned_on] and name not in known
            rates = trial.rates[:1] if chosen_later else rates_for(trial, name, seed, runs)
            wanted += [(name, rate, seed) for rate in rates]
    return [one for one in wanted if one not in done]


def plan_of(trial: Trial, name: str) -> dict[str, Any]:
    """What all runs of an arm have in common, as a plan says it."""
    arm = dict(trial.arms[name])
    loop = {"lr": 1e-3, "muon_lr": 3e-3, **trial.loop, **arm.pop("loop", {})}
    return {
        "target": trial.target,
        "data": trial.data,
        "valid": trial.tune,
        "tokens": trial.tokens,
        "depth": trial.depth,
        **arm,
        "loop": loop,
    }


def recipe_of(trial: Trial, name: str) -> str:
    """A digest of all that the figures of an arm's runs depend on: settings, texts, weights, but not where they lie."""
    given = plan_of(trial, name)
    told = {key: value for key, value in given.items() if key not in _ELSEWHERE}
    told |= {"test": trial.test, "texts": trial.texts, "judged": trial.depth}
    for key in ("data", "valid", "test"):
        told[key] = [_contents(path) for path in find_files(told[key])]
    for key in ("target", "init"):
        if told.get(key):
            told[key] = digest_weights(resolve(told[key]))
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _contents(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_same_recipe(trial: Trial, arms: Seq[str], record: Path, runs: Seq[Run]) -> None:
    """Raise `ConfigError` for a run that was trained by another recipe than its arm has now."""
    told = [run for run in runs if run.arm in arms and run.recipe]
    now = {arm: recipe_of(trial, arm) for arm in {run.arm for run in told}}
    for run in told:
        if run.recipe != now[run.arm]:
            raise ConfigError(
                f"{record} holds the run {run.place}, and the arm {run.arm!r} has other settings or texts by now: name "
                f"another folder (--out), or remove that line and {record.parent / run.place}"
            )


def run_lacking(trial: Trial, arms: Seq[str], work: Path, tell: Callable[[str], object]) -> None:
    """Seed by seed: first what no other process has under way, then whatever another one left undone."""
    record, recipes = work / RECORD, {name: recipe_of(trial, name) for name in arms}
    for seed in trial.seeds:
        for waits in (False, True):
            for name in arms:
                for rate in rates_for(trial, name, seed, read_runs(record)):
                    with mine(work / "locks" / f"{name}-{rate:g}-{seed}", waits=waits) as held:
                        if not held or (name, rate, seed) in {(r.arm, r.rate, r.seed) for r in read_runs(record)}:
                            continue
                        tell(f"{name}, rates x {rate:g}, seed {seed}\n")
                        run = run_arm(trial, name, rate, seed, work, lambda line: tell(f"  {line}\n"))
                        _append(record, replace(run, recipe=recipes[name]))


@contextmanager
def mine(lock: Path, *, waits: bool) -> Iterator[bool]:
    """Hold a file that says "this is being done". False: another process holds it; `waits`: until it lets go."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def run_arm(trial: Trial, name: str, rate: float, seed: int, work: Path, tell: Any) -> Run:
    """One training, judged on both sets of texts with the weights that were best while it ran."""
    given = plan_of(trial, name)
    loop = given["loop"] | {key: given["loop"][key] * rate for key in ("lr", "muon_lr")}
    plan = make_plan({"seed": seed, **given, "out": str(work / f"{name}-{rate:g}-{seed}"), "loop": loop})
    course = prepare(plan, tell)
    if isinstance(course.learner, AssessedLearner):
        raise ConfigError(f"arm {name!r}: {plan.kind} guesses no tokens, and a trial compares what drafts guess")
    if (course.loop.run_dir / CHECKPOINT).exists():
        course.loop.resume()
    course.loop.run()
    if course.loop.interrupted:
        raise KeyboardInterrupt
    course.loop.evaluate()
    course.loop.take_best()
    save_draft(course, Path(plan.out))
    if trial.promises:
        write_record(Path(plan.out), make_record(course, promises(course, texts=trial.promises)))
    options = read_options(course.method.options, plan.options, f"arm {name!r}")
    learner = course.method.load(options, course.teacher.target, Path(plan.out))  # as every user will find it
    codec, vocab_size = load_codec(course.source), course.teacher.target.config.vocab_size
    test, _, _ = open_corpus(find_files(trial.test), codec, vocab_size, work / "texts", held_out=0.0)
    scores = {}
    for words, texts in (("tune", course.held_out), ("test", test)):
        with torch.no_grad(), course.teacher.computing():  # as in training
            seen = _exam(trial, course, texts).walk(learner, course.teacher)
        scores[words] = {"tau": seen.tau, "conditional": seen.conditional, "joint": seen.joint}
    return Run(
        arm=name,
        rate=rate,
        seed=seed,
        scores=scores,
        seconds=round(course.loop.progress.seconds, 1),
        parameters=sum(p.numel() for p in course.learner.module.parameters() if p.requires_grad),
        machine=platform.processor() or platform.machine(),
    )


def _exam(trial: Trial, course: Course, texts: TrainingCorpus) -> Exam:
    config = course.loop.config
    batches = example_rows(texts, trial.texts, config.seq_len, config.micro_tokens)
    return Exam(batches=batches, depth=trial.depth, temperature=course.plan.temperature)


def read_runs(path: Path) -> list[Run]:
    """The runs that a trial has finished so far. Half a line at the end is none yet."""
    if not path.exists():
        return []
    runs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1], 1):
        try:
            runs += [Run(**json.loads(line))] if line else []
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{path}, line {number} is no run ({error}): remove it, and it is run again") from error
    return runs


def _append(path: Path, run: Run) -> None:
    """Write a run behind the others, in the place of half a line that a crash left there."""
    there = path.read_bytes() if path.exists() else b""
    if there and not there.endswith(b"\n"):
        os.truncate(path, there.rfind(b"\n") + 1)
    with path.open("a", encoding="utf-8") as out:
        out.write(json.dumps(run.told()) + "\n")
