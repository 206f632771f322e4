"""`outdraft tune-skip`: find the sublayers that a model may leave out when it drafts for itself.

The command writes texts and judges sets; the search is `drafters/draft_verify.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import argument, flag
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path

if TYPE_CHECKING:
    from outdraft.core.skip import Skip
    from outdraft.engine.llm import LLM
    from outdraft.engine.stats import RequestStats
    from outdraft.models.networks.config import ModelConfig

SUMMARY = "search for the sublayers that a model can skip when it drafts for itself"
EPILOG = """The result is for the drafter draft_verify. Trials are kept beside it (FILE.trials): run the command
again, and it goes on where it was. Needs the extra outdraft[tune]. Examples:
  outdraft tune-skip zoo:target --out skip.json
  outdraft tune-skip MODEL --out skip.json --prompts prompts.txt --trials 500
  outdraft generate "Once" --model MODEL --drafter draft_verify --drafter-options skip=skip.json"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which model, on which texts, and how long to search."""

    model: str | None = argument(None, "a Hugging Face directory, a hub name, a GGUF file, zoo:NAME, or ollama:NAME")
    out: str | None = flag(None, "the file to write", metavar="FILE")
    prompts: str | None = flag(
        None, "a text with a prompt a line; without it, pieces of the standard library", metavar="FILE"
    )
    num_prompts: int = flag(4, "prompts that are continued in each trial")
    max_tokens: int = flag(64, "tokens that continue each prompt")
    trials: int = flag(200, "sets to try in all; the paper tries up to 1000")
    objective: str = flag(
        "speed",
        "the score of a set: speed, in measured tokens per second; or modelled, the speed-up that acceptance and the "
        "bytes read would give, which repeats on a busy machine",
        choices=("speed", "modelled"),
    )
    num_speculative_tokens: int = flag(8, "draft tokens at most", short="-k")
    confidence_threshold: float = flag(0.8, "a less probable token ends the chain")
    seed: int = flag(0, "seed of the search")
    json: bool = flag(False, "machine output: out, score, objective, num_trials, attention, mlp")


def run(options: Options) -> int:
    """Search, write, and say what was found."""
    from outdraft.cli.console import make_console, progress_bar, say, write_json
    from outdraft.drafters.draft_verify import Tuned, tune
    from outdraft.drafters.shared.own_layers.skip_sets import save_skip
    from outdraft.engine.assembly.variant import network_of
    from outdraft.engine.llm import LLM

    if options.model is None or options.out is None:
        raise ConfigError("tune-skip needs a model and a file to write: outdraft tune-skip MODEL --out FILE")
    for name in ("num_prompts", "max_tokens", "trials", "num_speculative_tokens"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least 1")
    out = user_path(options.out)
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: {out.parent} is no directory; make it first")
    llm = LLM(
        options.model,
        drafter={"name": "draft_verify", "confidence_threshold": options.confidence_threshold},
        num_speculative_tokens=options.num_speculative_tokens,
    )
    config = network_of(llm.engine.parts).config
    console = make_console(stderr=options.json)
    with progress_bar(console, options.trials, "trials") as bar:
        known = 0

        def tell(best: Tuned) -> None:
            nonlocal known
            bar(f"best {best.score:.3f}, {len(best.skip)} sublayers left out", best.num_trials - known)
            known = best.num_trials

        best = tune(
            judge(llm, config, options),
            config.num_layers,
            trials=options.trials,
            journal=out.with_name(f"{out.name}.trials"),
            name=repr(replace(options, trials=0, json=False)),  # other settings are another search
            seed=options.seed,
            tell=tell,
        )
    notes = {"score": best.score, "objective": options.objective, "num_trials": best.num_trials}
    save_skip(best.skip, config.num_layers, out, model=str(options.model), **notes)
    if options.json:
        write_json({"out": str(out), **notes, "attention": sorted(best.skip.attention), "mlp": sorted(best.skip.mlp)})
    else:
        say(
            console,
            f"{out}: {len(best.skip)} of {2 * config.num_layers} sublayers left out, {options.objective} "
            f"{best.score:.3f} after {best.num_trials} trials",
        )
    return 0


def judge(llm: "LLM", config: "ModelConfig", options: Options) -> "Callable[[Skip], float]":
    """What a skip set is worth: a function that writes the texts with it."""
    from outdraft.drafters.draft_verify import DraftVerifyDrafter
    from outdraft.options.params import SamplingParams
    from outdraft.testing.prompts import identity_prompts

    drafter = llm.engine.parts.drafter
    assert isinstance(drafter, DraftVerifyDrafter)
    params = SamplingParams(max_tokens=options.max_tokens, ignore_eos=True)
    prompts: list[Any]
    if options.prompts:
        prompts = read_prompts(options.prompts)
    else:
        limits = {"vocab_size": config.vocab_size, "max_len": config.max_len // 4}
        ids = identity_prompts(llm.tokenizer, options.num_prompts, **limits)
        prompts = [{"prompt_token_ids": one} for one in ids]

    def worth(skip: "Skip") -> float:
        drafter.skip = skip
        stats: list[RequestStats] = [llm.generate(prompt, params).stats for prompt in prompts[: options.num_prompts]]
        tokens = sum(one.num_tokens for one in stats)
        if options.objective == "speed":
            return tokens / sum(sum(one.times.values()) for one in stats)
        passes = sum(one.num_steps for one in stats)
        drafted = sum(one.num_draft_tokens for one in stats)
        return tokens / (passes + drafted * step_cost(skip, config))

    return worth


def step_cost(skip: "Skip", config: "ModelConfig") -> float:
    """The share of a pass's weights that a draft step reads."""
    attention = config.hidden_size * config.head_dim * 2 * (config.num_heads + config.num_kv_heads)
    mlp = config.hidden_size * config.intermediate_size * (3 if config.gated_mlp else 2)
    head = config.hidden_size * config.vocab_size
    whole = config.num_layers * (attention + mlp) + head
    return (whole - len(skip.attention) * attention - len(skip.mlp) * mlp) / whole


def read_prompts(path: str) -> list[str]:
    """The lines of a text that say anything; a form feed or a line separator ends none."""
    try:
        lines = user_path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prompts {path} is not a readable UTF-8 text: {error}") from error
    prompts = [line for line in lines if line.strip()]
    if not prompts:
        raise ConfigError(f"--prompts {path} holds no prompt: write one a line")
    return prompts
