"""The zoo's models in one folder, judged by source: the recipe kind "evaluate".

Data out: OUT/evaluate/report.json (losses, the share of greedy texts that loop).
"""

from pathlib import Path

from lab.zoo.evaluate import EvaluateOptions, evaluate_losses, write_report
from lab.zoo.recipe import TrainingRecipe, build
from lab.zoo.repeats import share_that_loops
from lab.zoo.streams import Sampler, open_streams
from outdraft.codecs.tokenizer_file import read_tokenizer
from outdraft.engine.llm import LLM
from outdraft.options.errors import ConfigError
from outdraft.training.computing import open_target
from outdraft.training.journal import Report


def measure_zoo(recipe: TrainingRecipe, data: Path, out: Path, report: Report) -> None:
    """Loss of the target and of its draft, if there is one; how the target's own text is."""
    options = build(EvaluateOptions, recipe.task, "[task]")
    found = [name for name in ("target", "draft") if (out / name / "config.json").exists()]
    if "target" not in found:
        raise ConfigError(f"no target in {out / 'target'}: run the target's recipe with the same --out first")
    models = {name: open_target(out / name, "auto", "cpu")[0] for name in found}
    tokenizer = read_tokenizer(out / "tokenizer" / "tokenizer.json")
    losses = evaluate_losses(recipe.data, data, tokenizer, models, options)
    llm = LLM(out / "target", drafter="none")
    openings = {
        stream.name: Sampler([stream], 1).rows(0, 0, options.num_texts, options.prompt_tokens).tolist()
        for stream in open_streams(recipe.data, data, "valid")
    }
    looping = share_that_loops(llm, openings, options.text_tokens)
    write_report(out / recipe.name, {"losses": losses, "looping": looping})
    report(f"mixture: {losses['mixture']}; of {options.text_tokens} greedy tokens loop: {looping['all']:.2f}")
