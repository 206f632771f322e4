"""Carry out a recipe: which files it reads and writes, and which objective its kind means.

    OUT/tokenizer/  OUT/data/*.npy  OUT/<name>/ (what ships)  OUT/<name>/run/ (checkpoint, log)
    OUT/<another tokenizer>/  OUT/data/<another tokenizer>/*.npy

Recipes build on each other through OUT: tokenizer, then target, harvest, then draft, early_exit and eagle.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from outdraft.core.errors import ConfigError
from outdraft.drafters.eagle.net import load_eagle, save_eagle
from outdraft.drafters.early_exit.net import load_exit_head, save_exit_head
from outdraft.training.compilable import make_compilable
from outdraft.training.config import TARGETS_TOKENIZER, TrainingRecipe, build
from outdraft.training.data import SAMPLES, Sampler, open_streams, prepare
from outdraft.training.distill import Distill, DistillOptions
from outdraft.training.eagle import Eagle, EagleTraining, new_eagle
from outdraft.training.early_exit import EarlyExit, EarlyExitTraining, new_exit_head
from outdraft.training.export import export_decoder
from outdraft.training.harvest import HarvestOptions, harvest
from outdraft.training.loop import Loop, Objective, Report
from outdraft.training.measure import load_target, measure_zoo
from outdraft.training.pretrain import NextToken, PretrainOptions, new_decoder, trainable
from outdraft.training.team import Team, run_team
from outdraft.training.tokenizer import sample_texts, save_tokenizer, train_tokenizer

Export = Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A recipe with its folders; picklable, so that workers can be started with it."""

    recipe: TrainingRecipe
    out: Path
    resume: bool
    export_only: bool
    report: Report

    def __call__(self, team: Team) -> None:
        """What every worker does."""
        recipe, data = self.recipe, data_folder(self.recipe, self.out)
        if recipe.kind == "harvest":
            self._harvest(team)
            return
        share = float(recipe.task.get("samples_share", 0.0))
        copies = float(recipe.task.get("copies_share", 0.0)) or recipe.data.copies_share
        sources = replace(recipe.data, copies_share=copies)
        train = Sampler(open_streams(sources, data, "train", share), recipe.loop.seed)
        valid = Sampler(open_streams(sources, data, "valid", share), recipe.loop.seed)
        objective, export = make_objective(recipe, self.out)
        run_dir = self.out / recipe.name / "run"
        loop = Loop(objective, train, valid, recipe.loop, run_dir, team, self.report)
        if self.resume or self.export_only:
            loop.resume()
        if not self.export_only:
            loop.run()
            loop.evaluate()
        if team.rank == 0:
            export(self.out / recipe.name)

    def _harvest(self, team: Team) -> None:
        """Every worker samples its part, for training and for validation."""
        recipe, data = self.recipe, self.out / "data"
        options = build(HarvestOptions, recipe.task, "[task]")
        target = load_target(self.out)
        for split, num in (("train", options.num_texts), ("valid", options.num_valid)):
            sampler = Sampler(open_streams(recipe.data, data, split), recipe.loop.seed + 1000 * (team.rank + 1))
            part = harvest(target, sampler, max(1, num // team.size), options, self.report)
            np.save(data / f"{split}-{SAMPLES}-{team.rank}.npy", part)


def data_folder(recipe: TrainingRecipe, out: Path) -> Path:
    """Where the recipe's token streams lie: each tokenizer has its own."""
    return out / "data" if recipe.tokenizer == TARGETS_TOKENIZER else out / "data" / recipe.tokenizer


def make_objective(recipe: TrainingRecipe, out: Path) -> tuple[Objective, Export]:
    """The objective of the recipe's kind, and how its result is written."""
    seed, home, task = recipe.loop.seed, out / recipe.name, recipe.task
    if recipe.kind == "pretrain":
        more = build(PretrainOptions, task, "[task]").init
        decoder = trainable(home) if more else new_decoder(recipe.model, seed)
        return NextToken(decoder), lambda directory: export_decoder(decoder, directory, out / recipe.tokenizer)
    if recipe.tokenizer != TARGETS_TOKENIZER:
        raise ConfigError(
            f"kind {recipe.kind!r} learns from the target, in its ids: leave out tokenizer = {recipe.tokenizer!r}, or "
            "take kind 'pretrain'"
        )
    target = load_target(out)
    if recipe.kind == "distill":
        distil = build(DistillOptions, task, "[task]")
        draft = trainable(home) if distil.init else new_decoder(recipe.model, seed)
        return Distill(draft, target, distil), lambda directory: export_decoder(draft, directory, out / "tokenizer")
    if recipe.kind == "early_exit":
        leave = build(EarlyExitTraining, task, "[task]")
        head = load_exit_head(home, torch.bfloat16) if leave.init else new_exit_head(leave, target, seed)
        head.requires_grad_(True)
        return EarlyExit(head, target), lambda directory: save_exit_head(head, directory)
    if recipe.kind == "eagle":
        feature = build(EagleTraining, task, "[task]")
        net = load_eagle(home, target) if feature.init else new_eagle(feature, target, seed)
        net.requires_grad_(True)
        make_compilable(net, target.config.max_len)
        return Eagle(net, target, feature), lambda directory: save_eagle(net, directory)
    raise ConfigError(f"no trainer for kind {recipe.kind!r}")


def run_recipe(
    recipe: TrainingRecipe,
    data_dir: Path,
    out: Path,
    report: Report,
    *,
    resume: bool = False,
    export_only: bool = False,
) -> None:
    """Everything that a recipe asks for."""
    tokenizer_dir, data = out / recipe.tokenizer, data_folder(recipe, out)
    if recipe.kind == "tokenizer":
        texts = sample_texts(recipe.data, data_dir, recipe.data.tokenizer_chars)
        family = recipe.task.get("family", "byte_level")
        tokenizer = train_tokenizer(texts, recipe.task["vocab_size"], family)
        save_tokenizer(tokenizer, tokenizer_dir, recipe.task["max_len"])
        prepare(recipe.data, data_dir, tokenizer, data, report)
        return
    if not (tokenizer_dir / "tokenizer.json").exists():
        raise ConfigError(f"no tokenizer in {tokenizer_dir}: run the tokenizer's recipe with the same --out first")
    prepare(recipe.data, data_dir, Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json")), data, report)
    if recipe.kind == "evaluate":
        measure_zoo(recipe, out, report)
        return
    workers = 1 if export_only else recipe.loop.workers
    job = Job(recipe=recipe, out=out, resume=resume, export_only=export_only, report=report)
    run_team(job, workers, out / recipe.name / "run")
    if recipe.kind == "harvest":
        for split in ("train", "valid"):
            parts = [data / f"{split}-{SAMPLES}-{rank}.npy" for rank in range(workers)]
            np.save(data / f"{split}-{SAMPLES}.npy", np.concatenate([np.load(part) for part in parts]))
            for part in parts:
                part.unlink()
