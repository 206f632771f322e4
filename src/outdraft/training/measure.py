"""The zoo's models in one folder, judged by source: the recipe kind "evaluate"."""

from pathlib import Path

import torch
from tokenizers import Tokenizer

from outdraft.core.errors import ConfigError
from outdraft.models.load import load_model
from outdraft.training.config import TrainingRecipe, build
from outdraft.training.evaluate import EvaluateOptions, evaluate_losses, write_report
from outdraft.training.loop import Report


def measure_zoo(recipe: TrainingRecipe, out: Path, report: Report) -> None:
    """Loss of the target and of its draft, if there is one."""
    options = build(EvaluateOptions, recipe.task, "[task]")
    found = [name for name in ("target", "draft") if (out / name / "config.json").exists()]
    if "target" not in found:
        raise ConfigError(f"no target in {out / 'target'}: run the target's recipe with the same --out first")
    models = {name: load_model(out / name, torch.bfloat16) for name in found}
    tokenizer = Tokenizer.from_file(str(out / "tokenizer" / "tokenizer.json"))
    losses = evaluate_losses(recipe.data, out / "data", tokenizer, models, options)
    write_report(out / recipe.name, {"losses": losses})
    report(f"mixture: {losses['mixture']}")
