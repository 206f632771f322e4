"""`outdraft merge`: write a model again with a LoRA adapter of PEFT's in its weights."""

from dataclasses import dataclass

from outdraft.cli.options import argument, flag
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path

SUMMARY = "merge a LoRA adapter into a model's weights, and save the changed model"
EPILOG = """The adapter is PEFT's, or DIR/lora of `outdraft train layerskip`, `cllm`, or medusa with
joint=true. What it holds beside LoRA of linear maps is refused (docs/files_of_others.md, Adapters).
Example:
  outdraft merge MODEL --lora ADAPTER --out DIR"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to merge into what, and where to."""

    model: str | None = argument(
        None, "the model that the adapter was trained on: a directory, a hub name, or zoo:NAME"
    )
    lora: str | None = flag(None, "the adapter: a directory, or a hub name", metavar="DIR")
    out: str | None = flag(None, "the new directory; must not exist yet", metavar="DIR")


def run(options: Options) -> int:
    """Merge, and say what came of it."""
    from outdraft.cli.console import make_console, say
    from outdraft.models.remake.merge import merge_lora
    from outdraft.options.shown import shown

    if options.model is None or options.lora is None or options.out is None:
        raise ConfigError(
            "merge needs a model, an adapter and a new directory: outdraft merge MODEL --lora DIR --out DIR"
        )
    out = user_path(options.out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out} exists: name a new directory")
    adapter = merge_lora(options.model, options.lora, out)
    made_for = f", which names {shown(adapter.base)} as its model" if adapter.base else ""
    say(
        make_console(),
        f"{out}: {options.model} with {len(adapter.modules)} matrices changed by {options.lora}{made_for}; next: "
        f"outdraft generate TEXT --model {out}",
    )
    return 0
