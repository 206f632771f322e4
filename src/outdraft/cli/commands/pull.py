"""`outdraft pull`: download a model before it is needed, or go on with a download that was interrupted."""

from dataclasses import dataclass
from pathlib import Path

from outdraft.cli.options import argument, flag
from outdraft.options.errors import ConfigError

SUMMARY = "download a model of the Hugging Face hub, or one with a short name"
EPILOG = """What has arrived stays: the same command goes on with it. Every file is compared with its digest on the hub.
HF_ENDPOINT names another hub, HF_TOKEN or `hf auth login` opens private and gated models. Examples:
  outdraft pull Qwen/Qwen3-0.6B
  outdraft pull Qwen/Qwen3-0.6B-GGUF:Q8_0
  outdraft pull smollm2"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to download."""

    name: str | None = argument(
        None, "owner/model; owner/model:FILE for one GGUF file, by its name or its type (Q4_K_M); or smollm2"
    )
    revision: str | None = flag(None, "a branch, tag or commit of the hub; default: main", metavar="NAME")


def run(options: Options) -> int:
    """Download, and say what to do next."""
    from outdraft.cli.console import make_console, say
    from outdraft.options.near_miss import near_miss
    from outdraft.options.sizes import size_text
    from outdraft.weights.hub import is_hub_name
    from outdraft.weights.known import KNOWN, pull_known
    from outdraft.weights.published_drafts import find_published
    from outdraft.weights.pull import pull

    if options.name is None:
        raise ConfigError("pull needs a name: outdraft pull owner/model")
    name, revision = options.name, options.revision
    if is_hub_name(name):
        pulled = pull(name, revision)
        news = f"{size_text(pulled.num_missing)} downloaded" if pulled.num_missing else "all were here"
        told = f"{name} at {pulled.commit[:12]}: {pulled.num_files} files, {size_text(pulled.num_bytes)}, {news}\n"
        told += f"in {(path := pulled.path)}"
    elif name not in KNOWN:
        known = f"a short name ({', '.join(KNOWN)}){near_miss(name, KNOWN)}"
        raise ConfigError(f"{name} is no name of the hub: give owner/model, or {known}")
    elif revision is not None:
        raise ConfigError(f"--revision {revision} is of the hub, and {name} is one file: leave it out")
    else:
        told = f"{name} ({KNOWN[name].size}): {(path := pull_known(name))}"
    told += f"\nnext: {_next(name, path, revision)}"
    if drafts := find_published(name):
        told += f"\npublic drafts for it: {', '.join(drafts)}"
    say(make_console(), told)
    return 0


def _next(name: str, path: Path, revision: str | None) -> str:
    from outdraft.models.files.foreign_heads import drafter_of, recognise

    kind = recognise(path) if path.is_dir() else None
    if kind is not None and (drafter := drafter_of(kind[0])) != "draft_model":  # so a whole model is called
        return f"outdraft chat --model MODEL --drafter {drafter} --head {name}"
    return f"LLM({name!r}, {revision=})" if revision else f"outdraft chat --model {name}"
