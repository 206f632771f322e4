"""Carry out a recipe: which files it reads and writes, and which objective its kind means.

    OUT/tokenizer/  OUT/data/*.npy  OUT/<name>/ (what ships)  OUT/<name>/run/ (checkpoint, log)

Recipes build on each other through OUT: tokenizer, then target, then draft, early_exit and eagle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from outdraft.core.errors import ConfigError
from outdraft.training.config import Recipe
from outdraft.training.data import Sampler, open_streams, prepare
from outdraft.training.export import export_decoder
from outdraft.training.loop import Loop, Objective, Report
from outdraft.training.pretrain import NextToken, new_decoder
from outdraft.training.team import Team, run_team
from outdraft.training.tokenizer import sample_texts, save_tokenizer, train_tokenizer

Export = Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A recipe with its folders; picklable, so that workers can be started with it."""

    recipe: Recipe
    out: Path
    resume: bool
    report: Report

    def __call__(self, team: Team) -> None:
        """What every worker does."""
        recipe = self.recipe
        data = self.out / "data"
        train = Sampler(open_streams(recipe.data, data, "train"), recipe.loop.seed)
        valid = Sampler(open_streams(recipe.data, data, "valid"), recipe.loop.seed)
        objective, export = make_objective(recipe, self.out)
        run_dir = self.out / recipe.name / "run"
        loop = Loop(objective, train, valid, recipe.loop, run_dir, team, self.report)
        if self.resume:
            loop.resume()
        loop.run()
        loop.evaluate()
        if team.rank == 0:
            export(self.out / recipe.name)


def make_objective(recipe: Recipe, out: Path) -> tuple[Objective, Export]:
    """The objective of the recipe's kind, and how its result is written."""
    if recipe.kind == "pretrain":
        decoder = new_decoder(recipe.model, recipe.loop.seed)
        return NextToken(decoder), lambda directory: export_decoder(decoder, directory, out / "tokenizer")
    raise ConfigError(f"no trainer for kind {recipe.kind!r}")


def run_recipe(recipe: Recipe, data_dir: Path, out: Path, resume: bool, report: Report) -> None:
    """Everything that a recipe asks for."""
    tokenizer_dir = out / "tokenizer"
    if recipe.kind == "tokenizer":
        texts = sample_texts(recipe.data, data_dir, recipe.data.tokenizer_chars)
        tokenizer = train_tokenizer(texts, recipe.task["vocab_size"])
        save_tokenizer(tokenizer, tokenizer_dir, recipe.task["max_len"])
        prepare(recipe.data, data_dir, tokenizer, out / "data", report)
        return
    if not (tokenizer_dir / "tokenizer.json").exists():
        raise ConfigError(f"no tokenizer in {tokenizer_dir}: run the tokenizer's recipe with the same --out first")
    prepare(recipe.data, data_dir, Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json")), out / "data", report)
    run_team(Job(recipe=recipe, out=out, resume=resume, report=report), recipe.loop.workers, out / recipe.name / "run")
