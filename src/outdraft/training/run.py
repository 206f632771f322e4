"""Carry out a recipe of the zoo: its tokenizer, its target, the text that its drafts learn from, how good they are.

    OUT/tokenizer/  OUT/data/*.npy  OUT/<name>/ (what ships)  OUT/<name>/run/ (checkpoint, log)
    OUT/<another tokenizer>/  OUT/data/<another tokenizer>/*.npy

Recipes build on each other through OUT: tokenizer, target, mixture. The drafts are trained by `outdraft train`.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer

from outdraft.core.errors import ConfigError
from outdraft.core.new_file import new_file
from outdraft.training.computing import format_of_loop
from outdraft.training.config import TARGETS_TOKENIZER, TrainingRecipe, build
from outdraft.training.data import MixtureOptions, Sampler, open_streams, prepare
from outdraft.training.export import export_decoder
from outdraft.training.journal import Report
from outdraft.training.loop import Loop
from outdraft.training.measure import measure_zoo
from outdraft.training.objective import Evaluation
from outdraft.training.pretrain import NextToken, PretrainOptions, new_decoder, trainable
from outdraft.training.team import join_team
from outdraft.training.tokenizer import sample_texts, save_tokenizer, train_tokenizer


def data_folder(recipe: TrainingRecipe, out: Path) -> Path:
    """Where the recipe's token streams lie: each tokenizer has its own."""
    return out / "data" if recipe.tokenizer == TARGETS_TOKENIZER else out / "data" / recipe.tokenizer


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
    {
        "evaluate": lambda: measure_zoo(recipe, out, report),
        "mixture": lambda: write_mixture(recipe, data, out / recipe.name),
        "pretrain": lambda: pretrain(recipe, data, out, report, resume=resume, export_only=export_only),
    }[recipe.kind]()


def pretrain(recipe: TrainingRecipe, data: Path, out: Path, report: Report, *, resume: bool, export_only: bool) -> None:
    """Train a decoder on the text alone, and write it."""
    home, config = out / recipe.name, recipe.loop
    more = build(PretrainOptions, recipe.task, "[task]").init
    decoder = trainable(home) if more else new_decoder(recipe.model, config.seed)
    objective = NextToken(decoder)
    train, valid = (Sampler(open_streams(recipe.data, data, split), config.seed) for split in ("train", "valid"))
    with join_team("cpu") as team:
        loop = Loop(
            objective,
            train,
            config,
            home / "run",
            report,
            evaluate=judge(objective.loss, valid, recipe),
            team=team,
            vocab_size=decoder.config.vocab_size,
        )
        if resume or export_only:
            loop.resume(goes_on=not export_only)
        if not export_only:
            if team.leads:
                report(format_of_loop(config.bfloat16, loop.device).line)
            loop.run()
            loop.evaluate()
        if team.leads:
            export_decoder(decoder, home, out / recipe.tokenizer)


def judge(
    loss: Callable[[torch.Tensor], torch.Tensor], valid: Sampler, recipe: TrainingRecipe
) -> Callable[[], Evaluation]:
    """The mean loss over fixed held-out rows."""
    length = recipe.loop.seq_len
    micro = max(1, recipe.loop.micro_tokens // length)
    passes = max(1, recipe.loop.eval_tokens // (length * micro))

    def evaluate() -> Evaluation:
        parts = [loss(valid.rows(0, i * micro, micro, length + 1)).float() for i in range(passes)]
        nats = float(torch.stack(parts).mean(0)[0])
        return Evaluation(score=-nats, line=f"validation {nats:.4f}", numbers={"validation": nats})

    return evaluate


def write_mixture(recipe: TrainingRecipe, data: Path, out: Path) -> None:
    """OUT/<name>/train.jsonl and valid.jsonl: windows of the corpora, as ids, for drafts to learn from."""
    options = build(MixtureOptions, recipe.task, "[task]")
    sources = replace(recipe.data, copies_share=options.copies_share or recipe.data.copies_share)
    for split, count in (("train", options.num_texts), ("valid", options.num_valid)):
        sampler = Sampler(open_streams(sources, data, split), recipe.loop.seed)
        with new_file(out / f"{split}.jsonl") as beside, beside.open("w", encoding="utf-8") as lines:
            for i in range(count):
                ids = sampler.rows(i, 0, 1, options.length)[0].tolist()
                lines.write(json.dumps({"token_ids": ids}) + "\n")
