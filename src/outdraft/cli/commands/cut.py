"""`outdraft cut`: make a smaller model of some of a model's layers, with its embeddings, norm, head and tokenizer."""

from dataclasses import dataclass

from outdraft.cli.options import argument, flag
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path

SUMMARY = "make a draft model from some of a model's layers"
EPILOG = """The first layer, every third after it and the last, unless you name others. Untrained, such a draft
guesses little: `outdraft train draft_model --target MODEL --init DIR` teaches it.
Examples:
  outdraft cut MODEL --out DIR
  outdraft cut MODEL --out DIR --layers 0,1,15"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to cut from what, and where to."""

    model: str | None = argument(None, "the model: a directory, a hub name, or zoo:NAME")
    out: str | None = flag(None, "the new directory; must not exist yet", metavar="DIR")
    layers: str | None = flag(
        None, "layers to keep, from 0, in order; default: every third and the last", metavar="N,N"
    )


def run(options: Options) -> int:
    """Cut, and say what came of it."""
    from outdraft.cli.console import make_console, say
    from outdraft.models.files.load import load_model, save_model
    from outdraft.models.remake.cut import cut_decoder, every_third
    from outdraft.weights.hub import resolve
    from outdraft.weights.text_files import copy_text_files

    if options.model is None or options.out is None:
        raise ConfigError("cut needs a model and a new directory: outdraft cut MODEL --out DIR")
    source, out = resolve(options.model), user_path(options.out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out} exists: name a new directory")
    decoder = load_model(source)
    layers = _numbers(options.layers) if options.layers is not None else every_third(decoder.config.num_layers)
    small = cut_decoder(decoder, layers)
    save_model(small, out)
    copy_text_files(source, out)
    say(
        make_console(),
        f"{out}: layers {', '.join(map(str, layers))} of {decoder.config.num_layers}, {small.num_parameters / 1e6:.1f} "
        f"of {decoder.num_parameters / 1e6:.1f} million parameters; next: outdraft train draft_model --target "
        f"{options.model} --init {out} --data FILES --out DIR",
    )
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ConfigError(f"--layers {text!r} is no list of numbers: write for example --layers 0,3,6,8") from None
