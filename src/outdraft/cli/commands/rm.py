"""`outdraft rm`: remove a model that was downloaded, and say how many bytes are free again."""

import sys
from dataclasses import dataclass

from outdraft.cli.options import argument, flag
from outdraft.options.errors import ConfigError

SUMMARY = "remove a downloaded model from the hub's cache, or from outdraft's own"
EPILOG = """The names are those of `outdraft list`. Files of packages, Ollama and LM Studio are left to them.
Examples:
  outdraft rm Qwen/Qwen3-0.6B
  outdraft rm Qwen/Qwen3-0.6B-GGUF:Q8_0 --yes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which model to remove, and whether to ask first."""

    name: str | None = argument(None, "owner/model; owner/model:FILE for one GGUF file; or smollm2")
    yes: bool = flag(False, "do not ask", short="-y")


def run(options: Options) -> int:
    """Ask, remove, and say what was freed."""
    from outdraft.cli.console import make_console, say
    from outdraft.options.sizes import size_text
    from outdraft.weights.kept import plan_removal

    if options.name is None:
        raise ConfigError("rm needs a name: outdraft rm NAME, one of outdraft list")
    num_bytes, remove = plan_removal(options.name)
    size = size_text(num_bytes)
    console = make_console()
    if not options.yes:
        if not sys.stdin.isatty():
            raise ConfigError(f"rm would free {size} of {options.name} and there is no terminal to ask: give --yes")
        console.print(f"remove {options.name} ({size})? [y/N] ", end="", markup=False, soft_wrap=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return 0
    remove()
    say(console, f"{options.name}: {size} freed")
    return 0
