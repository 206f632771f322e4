"""The table of must-have figures: one draft of each kind, trained on equal data by `family.toml`.

    python -m lab.zoo.figures family.toml --out OUT/family --text TEXT.jsonl

                               measures what is lacking, and prints the table
        --methods              prints the words for `outdraft bench`, a method for each draft of the trial's target
        --methods --arm ARM    those of one arm, whose target may be its own: OUT/family/<run>/target
        --bench FILE.jsonl     what a bench recorded (several may be given): the drafting share and the wall clock
        --forecast             measures nothing, and says how long what is lacking takes

Where `family.toml` is run: paths in it are relative. Of each draft OUT/figures.jsonl has a line: acceptance on held-out
text and on the target's samples, and what `outdraft train check` finds, greedy and at temperature 1. What has a line is
not measured again; a draft that was trained again is. An arm that taught its target is measured as that target's.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any

import torch

from lab.trials.table import TAU, Run, chosen
from lab.trials.trial import RECORD, Trial, lacking, read_runs, read_trial
from outdraft.bench.machine import describe
from outdraft.core.learner import TARGET
from outdraft.core.learner_registry import find_learner
from outdraft.core.registry import read_options
from outdraft.engine.naming.recipe import read_recipe, recipe_names
from outdraft.models.files.load_codec import load_codec
from outdraft.training.check import check_directory
from outdraft.training.computing import open_target
from outdraft.training.corpus import open_corpus
from outdraft.training.draft import Exam
from outdraft.training.examples import find_files
from outdraft.training.lessons import Teacher
from outdraft.training.packing import example_rows
from outdraft.training.record import RECORD as RECORD_OF_DRAFT
from outdraft.weights.digest import digest_weights
from outdraft.weights.hub import resolve

FIGURES = "figures.jsonl"
WAYS = {0.0: "greedy", 1.0: "sampled"}


def drafts_of(trial: Trial, out: Path) -> dict[str, Run]:
    """The arms that were trained, each with the run of its first seed at its best rate."""
    runs = read_runs(out / RECORD)
    found = {arm: chosen(runs, arm, TAU) for arm in trial.arms}
    return {arm: own[0] for arm, own in found.items() if own}


def measured(path: Path) -> dict[str, dict[str, Any]]:
    """The line of each draft, by the digest of its weights; a half line at the end is cut off."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return {row["weights"]: row for row in map(json.loads, whole.splitlines())}


def measure(trial: Trial, arm: str, place: Path, texts: dict[str, list[Path]], cache: Path) -> dict[str, Any]:
    """Acceptance by position on each set of texts, and the check of what the draft promised."""
    began, kind = perf_counter(), trial.arms[arm]["kind"]
    (target, _), method = open_target(resolve(trial.target), "auto", "cpu"), find_learner(kind)
    learner = method.load(read_options(method.options, trial.arms[arm].get("options", {}), arm), target, place)
    learner.module.eval()
    teacher, codec = Teacher(target, learner.taps), load_codec(resolve(trial.target))
    row: dict[str, Any] = {"arm": arm, "weights": digest_weights(place), "bytes": weights_bytes(place)}
    for name, files in texts.items():
        corpus, _, _ = open_corpus(files, codec, target.config.vocab_size, cache, held_out=0.0)
        with torch.no_grad(), teacher.computing():
            seen = Exam(batches=example_rows(corpus, trial.texts, 256, 1024), depth=trial.depth).walk(learner, teacher)
        row[name] = {"tau": seen.tau, "conditional": seen.conditional}
    if own_target(place) is not None:
        row["target_nats"] = json.loads((place / RECORD_OF_DRAFT).read_text(encoding="utf-8"))["target_nats"]
    for one in check_directory(place, str(own_target(place) or trial.target)):
        row[WAYS[one.promise.terms.temperature]] = one.told()
        sys.stderr.write(f"{arm}: {one.line}\n")
    return row | {"seconds": round(perf_counter() - began, 1)}


def own_target(place: Path) -> Path | None:
    """The target that learned with this draft; None: the trial's."""
    return place / TARGET if (place / TARGET).is_dir() else None


def weights_bytes(place: Path) -> int:
    """What the draft's own files hold."""
    return sum(path.stat().st_size for path in place.glob("*.safetensors"))


def recipe_of(kind: str) -> str:
    """The recipe that drafts with this kind of draft."""
    drafter = find_learner(kind).drafter or kind
    return kind if kind in recipe_names() else drafter


def method_words(kind: str, place: Path) -> str:
    """As `outdraft bench --method` takes it."""
    recipe = recipe_of(kind)
    role = "draft_model" if "draft_model" in read_recipe(recipe).roles else "head"
    return f"recipe:{recipe},{role}={place}"


def benched(path: Path, arms: dict[str, Path]) -> dict[str, dict[str, float]]:
    """Of each arm over all prompts: the drafting share of a round, tokens a pass, wall clock over plain decoding.

    Rows are those of the weights that were measured last.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row.get("kind") == "row"]
    found = {}
    for arm, place in arms.items():
        own = [row for row in rows if row["method"].endswith(f"={place}")]
        if not own:
            continue
        own = [row for row in own if _weights(row) == _weights(own[-1])]  # a draft trained before may have lain there
        ratios = [median(p / m for p, m in zip(row["plain_seconds"], row["seconds"], strict=True)) for row in own]
        share = sum(row["split"]["draft"] for row in own) / sum(sum(row["split"].values()) for row in own)
        found[arm] = {"share": share, "speedup": fmean(ratios), "tau": fmean(row["tau"] for row in own)}
        found[arm]["identical"] = all(row["identical"] is not False for row in own)
    return found


def _weights(row: dict[str, Any]) -> str | None:
    """Which weights drafted in a row of the bench, inflated as it was; None for a draft model."""
    digest: str | None = row["config"]["drafter"].get("weights")
    return digest


def table(trial: Trial, drafts: dict[str, Run], rows: dict[str, dict[str, Any]], bench: dict[str, Any]) -> str:
    """Markdown: a line a draft."""
    head = [
        "kind",
        "seconds",
        "MB",
        "accepted at 1 to 4, held-out text",
        "on the target's samples",
        "tokens a pass, greedy",
        "T = 1",
        "drafting share at 300M",
        "wall clock over plain at 300M",
        "check",
    ]
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for arm, run in drafts.items():
        row = rows.get(arm)
        if row is None:
            continue
        rates = [" ".join(f"{x:.2f}" for x in row[name]["conditional"]) for name in ("text", "samples")]
        own = bench.get(arm)
        speed = [f"{own['share']:.0%}", f"{own['speedup']:.2f}"] if own else ["", ""]
        outcomes = sorted({row[way]["outcome"] for way in WAYS.values()})
        cells = [
            arm,
            f"{run.seconds:.0f}",
            f"{row['bytes'] / 1e6:.1f}",
            *rates,
            *(f"{row[way]['measured']:.2f}" for way in WAYS.values()),
            *speed,
            ", ".join(outcomes),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    rounds = min((row[way]["rounds"] for row in rows.values() for way in WAYS.values()), default=0)
    others = "".join(f", {arm} {trial.arms[arm]['tokens']:,}" for arm in drafts if "tokens" in trial.arms[arm])
    nats = {arm: row["target_nats"] for arm, row in rows.items() if "target_nats" in row}
    taught = "".join(
        f"\n\n{arm}: its target learned with it: {own['before']:.3f} nats a token before, {own['after']:.3f} after"
        for arm, own in nats.items()
    )
    about = (
        f"{trial.tokens:,} tokens each{others}; seconds of {describe('cpu')['cpu']}; "
        f"checks of at least {rounds:.0f} rounds{taught}"
    )
    return "\n".join([*lines, "", about]) + "\n"


def main() -> None:
    """Measure the drafts, or print what `--methods` asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--text", action="append", default=[], help="held-out text")
    parser.add_argument("--bench", type=Path, action="append", default=[])
    parser.add_argument("--methods", action="store_true")
    parser.add_argument("--arm", help="with --methods: of this arm alone")
    parser.add_argument("--forecast", action="store_true")
    given = parser.parse_args()
    trial = read_trial(given.file)
    drafts = drafts_of(trial, given.out)
    places = {arm: (given.out / run.place).resolve() for arm, run in drafts.items()}
    if given.methods:
        if given.arm is not None and given.arm not in places:
            sys.exit(f"no draft of {given.arm} is trained in {given.out}; there are: {', '.join(places)}")
        asked = [given.arm] if given.arm else [arm for arm, place in places.items() if own_target(place) is None]
        words = (method_words(trial.arms[arm]["kind"], places[arm]) for arm in asked)
        sys.stdout.write("".join(f"--method {one}\n" for one in words))
        return
    known = measured(given.out / FIGURES)
    rows = {arm: known.get(digest_weights(place)) for arm, place in places.items()}
    todo = [arm for arm, row in rows.items() if row is None]
    if given.forecast:
        untrained = len(lacking(trial, list(trial.arms), read_runs(given.out / RECORD)))
        each = median(row["seconds"] for row in known.values()) if known else float("nan")
        sys.stdout.write(f"{len(todo)} drafts to measure, {untrained} to train first: {each:.0f} s each\n")
        return
    texts = {"text": find_files(given.text), "samples": find_files(trial.test)}
    for arm in todo:
        rows[arm] = measure(trial, arm, places[arm], texts, given.out / "texts")
        with (given.out / FIGURES).open("a", encoding="utf-8") as out:
            out.write(json.dumps(rows[arm]) + "\n")
    bench = {arm: one for path in given.bench if path.exists() for arm, one in benched(path, places).items()}
    sys.stdout.write(table(trial, drafts, {arm: row for arm, row in rows.items() if row}, bench))


if __name__ == "__main__":
    main()
