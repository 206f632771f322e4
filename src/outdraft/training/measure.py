"""The whole zoo in one folder, loaded and judged: the recipe kind "evaluate"."""

from pathlib import Path

import torch
from tokenizers import Tokenizer

from outdraft.core.errors import ConfigError
from outdraft.drafters.eagle.net import load_eagle
from outdraft.drafters.early_exit.net import load_exit_head
from outdraft.models.base import Decoder
from outdraft.models.load import load_model
from outdraft.training.compilable import make_compilable
from outdraft.training.config import TrainingRecipe, build
from outdraft.training.distill import Distill, DistillOptions
from outdraft.training.eagle import Eagle, EagleTraining
from outdraft.training.early_exit import EarlyExit
from outdraft.training.evaluate import EvaluateOptions, evaluate_acceptance, evaluate_losses, write_report
from outdraft.training.loop import Report


def load_target(out: Path) -> Decoder:
    """The target trained before, in bfloat16 and frozen."""
    directory = out / "target"
    if not (directory / "config.json").exists():
        raise ConfigError(f"no target in {directory}: run the target's recipe with the same --out first")
    target = load_model(directory, torch.bfloat16).train().requires_grad_(False)
    make_compilable(target, target.config.max_len)
    return target


def measure_zoo(recipe: TrainingRecipe, out: Path, report: Report) -> None:
    """Loss and acceptance of everything that was trained."""
    options = build(EvaluateOptions, recipe.task, "[task]")
    target, draft = load_target(out), load_model(out / "draft", torch.bfloat16)
    tokenizer = Tokenizer.from_file(str(out / "tokenizer" / "tokenizer.json"))
    net, head = load_eagle(out / "eagle", target), load_exit_head(out / "early_exit", torch.bfloat16)
    shape = net.config
    unrolled = EagleTraining(
        taps=shape.taps,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate_size,
    )
    drafters = {
        "draft": Distill(draft, target, DistillOptions()).loss,
        "early_exit": EarlyExit(head, target).loss,
        "eagle": Eagle(net, target, unrolled).loss,
    }
    losses = evaluate_losses(recipe.data, out / "data", tokenizer, {"target": target, "draft": draft}, options)
    accepted = evaluate_acceptance(recipe.data, out / "data", drafters, options)
    write_report(out / recipe.name, {"losses": losses, "acceptance": accepted})
    report(f"mixture: {losses['mixture']}; acceptance: {accepted}")
