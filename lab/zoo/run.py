"""Carry out a recipe of the zoo: its tokenizer, its target, the text that its drafts learn from, how good they are.

    OUT/tokenizer/  OUT/data/<digest>/*.npy  OUT/<name>/ (what ships)  OUT/<name>/run/ (checkpoint, log)

Recipes build on each other through OUT: tokenizer, target, mixture. The drafts are trained by `outdraft train`.
"""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lab.zoo.export import export_decoder
from lab.zoo.measure import measure_zoo
from lab.zoo.pretrain import NextToken, PretrainOptions, new_decoder, trainable
from lab.zoo.recipe import PretrainLoop, TrainingRecipe, build
from lab.zoo.streams import COPIES, MixtureOptions, Sampler, halve, open_streams, prepare, stream_folder
from lab.zoo.tokenizer import TokenizerOptions, sample_texts, save_tokenizer, train_tokenizer
from outdraft.codecs.tokenizer_file import read_tokenizer
from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file
from outdraft.training.alone import alone
from outdraft.training.computing import Format, choose_format
from outdraft.training.journal import Report
from outdraft.training.loop import CHECKPOINT, Loop
from outdraft.training.objective import Evaluation
from outdraft.training.team import Team, join_team


def data_folder(recipe: TrainingRecipe, out: Path) -> Path:
    """Where the recipe's token streams lie."""
    return out / "data" / stream_folder(recipe.data, out / recipe.tokenizer)


def run_recipe(
    recipe: TrainingRecipe,
    data_dir: Path,
    out: Path,
    report: Report,
    *,
    resume: bool = False,
    export_only: bool = False,
) -> None:
    """Everything that a recipe asks for. Raises `KeyboardInterrupt` where it was stopped before its end."""
    tokenizer_dir = out / recipe.tokenizer
    with join_team("cpu") as team:
        if team.leads:
            if recipe.kind == "tokenizer":
                make_tokenizer(recipe, data_dir, tokenizer_dir)
            if not (tokenizer_dir / "tokenizer.json").exists():
                raise ConfigError(
                    f"no tokenizer in {tokenizer_dir}: run the tokenizer's recipe with the same --out first"
                )
            tokenizer = read_tokenizer(tokenizer_dir / "tokenizer.json")
            prepare(recipe.data, data_dir, tokenizer, data_folder(recipe, out), report)
        team.wait()  # one worker encodes, the others find it
        data = data_folder(recipe, out)
        if recipe.kind == "pretrain":
            pretrain(recipe, data, out, report, team, resume=resume, export_only=export_only)
        elif recipe.kind == "evaluate" and team.leads:
            measure_zoo(recipe, data, out, report)
        elif recipe.kind == "mixture" and team.leads:
            write_mixture(recipe, data, out / recipe.name)


def make_tokenizer(recipe: TrainingRecipe, data_dir: Path, out: Path) -> None:
    """Learn a tokenizer from the recipe's sources, and write it."""
    options = build(TokenizerOptions, recipe.task, "[task]")
    texts = sample_texts(recipe.data, data_dir, recipe.data.tokenizer_chars)
    save_tokenizer(train_tokenizer(texts, options.vocab_size, options.family), out, options.max_len)


def pretrain(
    recipe: TrainingRecipe, data: Path, out: Path, report: Report, team: Team, *, resume: bool, export_only: bool
) -> None:
    """Train a decoder on the text alone, and write it."""
    home, config = out / recipe.name, recipe.loop
    more = build(PretrainOptions, recipe.task, "[task]").init
    decoder = trainable(home) if more else new_decoder(recipe.model, config.seed)
    objective = NextToken(decoder)
    if config.compile:
        objective.total = torch.compile(objective.total, dynamic=False)  # type: ignore[method-assign]

    def tell(line: str) -> None:
        if team.leads:
            report(line)

    train, valid = (Sampler(open_streams(recipe.data, data, split), config.seed) for split in ("train", "valid"))
    loop = Loop(
        objective,
        train,
        config,
        home / recipe.run,
        report,
        dtype=format_of(config).dtype,
        evaluate=judge(objective.loss, valid, recipe),
        team=team,
        vocab_size=decoder.config.vocab_size,
        about=_about(recipe, data),
    )
    if export_only:
        loop.resume(goes_on=False)
    else:
        with alone(loop.run_dir) if team.leads else nullcontext():
            if resume:
                loop.resume()
                if loop.step >= loop.schedule.end:
                    tell(f"{loop.run_dir} ended at step {loop.step}; --export writes its weights to {home} again")
                    return
            elif (loop.run_dir / CHECKPOINT).exists():
                raise ConfigError(
                    f"{loop.run_dir} holds a training run: continue it with --resume, or move it away to train anew"
                )
            tell(format_of(config).line)
            loop.run()
            if loop.interrupted:
                cure = "--resume goes on" if loop.step < loop.schedule.end else "it has ended, and --export writes it"
                tell(f"stopped at step {loop.step}, and nothing is written to {home}; {cure}")
                raise KeyboardInterrupt
            loop.evaluate()
    if team.leads:
        export_decoder(decoder, home, out / recipe.tokenizer)


def format_of(config: PretrainLoop) -> Format:
    """What the passes of a decoder compute in, by the recipe's own setting."""
    asked = None if config.bfloat16 is None else torch.bfloat16 if config.bfloat16 else torch.float32
    return choose_format(asked, torch.bfloat16, torch.device("cpu"))


def _about(recipe: TrainingRecipe, data: Path) -> dict[str, Any]:
    """What must be the same when a run goes on, so that it ends with the same bits."""
    shares = {source.name: source.share for source in recipe.data.sources} | {COPIES: recipe.data.copies_share}
    return {
        **recipe.loop.of_steps,
        "seed": recipe.loop.seed,
        "model": repr(sorted(recipe.model.items())),
        "task": repr(sorted(recipe.task.items())),
        "streams": data.name,
        "shares": repr(sorted(shares.items())),
    }


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
    """OUT/<name>/train.jsonl, valid.jsonl and test.jsonl: windows of the corpora, as ids, for drafts to learn from.

    Each half of the held-out text is in one of the latter two.
    """
    options = build(MixtureOptions, recipe.task, "[task]")
    sources = replace(recipe.data, copies_share=options.copies_share or recipe.data.copies_share)
    valid, test = halve(open_streams(sources, data, "valid"))
    parts = {
        "train": (open_streams(sources, data, "train"), options.num_texts),
        "valid": (valid, options.num_valid),
        "test": (test, options.num_valid),
    }
    for name, (streams, count) in parts.items():
        sampler = Sampler(streams, recipe.loop.seed)
        with new_file(out / f"{name}.jsonl") as beside, beside.open("w", encoding="utf-8") as lines:
            for i in range(count):
                ids = sampler.rows(i, 0, 1, options.length)[0].tolist()
                lines.write(json.dumps({"token_ids": ids}) + "\n")
