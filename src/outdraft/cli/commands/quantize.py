"""`outdraft quantize`: write a model again with its weights on few bits, and say what that changed.

The command plans, shows and writes; rounding is `models/remake/quantize.py`, the layout `docs/quantization.md`. With
`--type` it writes one GGUF file in llama.cpp's block formats (`models/remake/gguf_round.py`).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import argument, flag, flag_name, given_names
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path

if TYPE_CHECKING:
    from rich.console import Console
    from torch import Tensor

SUMMARY = "round a model's weights to 8 or 4 bits, or as a GGUF file, and save it"
EPILOG = """A quantized model is another model with another distribution; decoding it speculatively keeps *its*
distribution. The last quarter of the calibration text measures how far that is from the original's; gptq learns from
the rest.
Examples:
  outdraft quantize zoo:target --out target-int4
  outdraft quantize MODEL --out DIR --bits 8 --group-size 0 --head
  outdraft quantize MODEL --out DIR --keep "layers.0.*" --keep "layers.31.*" --layer-bits "*.down=8"
  outdraft quantize MODEL --out DIR --keep "layers.0.*" --keep "*.down" --calibration text.txt --json
  outdraft quantize MODEL --out model-q4_k_m.gguf --type q4_k_m"""
WINDOW = 256  # tokens that are read at once from an empty past
Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to round, how, and where to."""

    model: str | None = argument(None, "a Hugging Face directory, a hub name, a GGUF file, zoo:NAME, or ollama:NAME")
    out: str | None = flag(None, "the new directory, or file with --type; must not exist yet", metavar="PATH")
    type: str | None = flag(
        None,
        "write one GGUF file in this mixture of llama.cpp's: q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k_s, q3_k_m, "
        "q3_k_l, q4_k_s, q4_k_m, q5_k_s, q5_k_m, q6_k, iq4_nl, iq4_xs; no other option goes with it but --json",
    )
    bits: int = flag(4, "8 or 4 bits a weight")
    group_size: int = flag(32, "inputs that share a scale: 32, 64, 128, or 0 for all inputs of an output")
    method: str = flag(
        "rtn", "rtn rounds each weight to the nearest; gptq learns from the calibration text", choices=("rtn", "gptq")
    )
    head: bool = flag(False, "quantize the output head too")
    keep: tuple[str, ...] = flag((), "a layer to leave as it is, e.g. layers.0.qkv or '*.down'; may be repeated")
    layer_bits: Mapping[str, Any] = flag({}, "other bits for some layers, e.g. '*.down=8'; may be repeated")
    calibration: str | None = flag(None, "a text to measure the change on, and for gptq to learn from", metavar="FILE")
    windows: int = flag(64, f"windows of {WINDOW} tokens that are taken of the calibration text at most")
    json: bool = flag(False, "machine output: out, variant, bytes_before, bytes_after, divergence, native_divergence")


def run(options: Options) -> int:
    """Quantize, write, and report."""
    from outdraft.cli.console import make_console, say, write_json
    from outdraft.nn.quant.config import QuantConfig

    if options.model is None or options.out is None:
        raise ConfigError("quantize needs a model and a new directory: outdraft quantize MODEL --out DIR")
    out = user_path(options.out)
    if out.exists():
        raise ConfigError(f"--out {out} exists already: name a new directory, or remove it first")
    console = make_console(stderr=options.json)
    if options.type is not None:
        return _write_gguf(options, out, console)
    if options.method == "gptq" and options.calibration is None:
        raise ConfigError("--method gptq learns from a text: name one with --calibration FILE, or take --method rtn")
    keep = options.keep if options.head else (*options.keep, "lm_head")
    config = QuantConfig(
        bits=options.bits,
        group_size=options.group_size,
        method=options.method,
        keep=keep,
        layer_bits=tuple(options.layer_bits.items()),
    )
    with console.status("loading") as status:
        report = quantize(options, config, out, status.update)
    if options.json:
        write_json(report)
        return 0
    say(console, f"{options.model} -> {out}  ({report['variant']})")
    _show_sizes(report, console)
    if not (out / "tokenizer.json").is_file() and not (out / "vocab.json").is_file():
        say(console, f"no tokenizer stood beside {options.model}: put the model's tokenizer.json into {out}")
    for key, computed in (("divergence", "the weights alone"), ("native_divergence", "on the native kernels")):
        far = report[key]
        if far is not None:
            say(
                console,
                f"from the original on {far['num_tokens']} tokens of {options.calibration}, {computed}:  "
                f"mean KL {far['kl']:.5f} nats/token, same first choice {far['top1']:.2%}",
            )
    return 0


def _write_gguf(options: Options, out: Path, console: "Console") -> int:
    from outdraft.cli.console import say, write_json
    from outdraft.models.remake.gguf_round import write_rounded_gguf
    from outdraft.weights.hub import resolve

    if others := sorted({*given_names(options)} - {"model", "out", "type", "json"}):
        raise ConfigError(
            f"--{flag_name(others[0])} is for a directory of outdraft's own layout: leave it out, or leave --type out"
        )
    source, mixture = resolve(str(options.model)), str(options.type)
    with console.status("loading") as status:
        kinds = write_rounded_gguf(
            source, out, mixture, lambda done, count: status.update(f"rounding, {100 * done // count} % done")
        )
    tensors = dict(Counter(kinds.values()).most_common())
    sizes = {"bytes_before": _weight_bytes(source), "bytes_after": out.stat().st_size}
    if options.json:
        write_json({"model": options.model, "out": str(out), "type": mixture, "tensors": tensors, **sizes})
        return 0
    held = ", ".join(f"{count} {kind}" for kind, count in tensors.items())
    say(console, f"{options.model} -> {out}  ({mixture}: {held})")
    _show_sizes(sizes, console)
    return 0


def _show_sizes(report: Mapping[str, Any], console: "Console") -> None:
    from outdraft.cli.console import say

    before, after = report["bytes_before"] / 1e6, report["bytes_after"] / 1e6
    say(console, f"weights  {before:.1f} MB -> {after:.1f} MB  ({after / before:.0%})")


def quantize(options: Options, config: Any, out: Path, tell: Tell) -> dict[str, Any]:
    """Do it; returns the report."""
    from outdraft.models.files.load import load_model, save_model
    from outdraft.models.networks.divergence import compare_distributions
    from outdraft.models.networks.native import NativeDecoder, can_pack
    from outdraft.models.remake.calibrate import calibrate_decoder
    from outdraft.models.remake.quantize import quantize_decoder
    from outdraft.weights.hub import resolve
    from outdraft.weights.text_files import copy_text_files

    source = resolve(str(options.model))
    original = load_model(source)
    windows = read_windows(source, options, original.config.max_len)

    def rounding(done: int, count: int) -> None:
        tell(f"rounding {done} of {count}")

    if config.method == "gptq" and windows is not None:
        small = calibrate_decoder(original, config, windows[0], rounding)
    else:
        small = quantize_decoder(original, config, rounding)
    measured: dict[str, Any] = {"divergence": None, "native_divergence": None}
    if windows is not None:
        tell("measuring")
        measured["divergence"] = asdict(compare_distributions(original, small, windows[1]))
        if can_pack(small.config, small.dtype, small.device):
            found = compare_distributions(original, NativeDecoder(small), windows[1])
            measured["native_divergence"] = asdict(found)
    tell("writing")
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as half_done:
        new = Path(half_done) / "model"
        save_model(small, new)
        copy_text_files(source, new)
        new.rename(out)
    return {
        "model": str(options.model),
        "out": str(out),
        "variant": config.variant,
        "quantization_config": config.to_json(),
        "bytes_before": _weight_bytes(source),
        "bytes_after": _weight_bytes(out),
        **measured,
    }


def read_windows(source: Path, options: Options, max_len: int) -> "tuple[Tensor, Tensor] | None":
    """Windows of ids [W, T] from all over the calibration text: three quarters to learn from, a last to measure on."""
    import torch

    from outdraft.models.files.load_codec import load_codec

    if options.calibration is None:
        return None
    codec = load_codec(source)
    if codec is None:
        raise ConfigError(f"{source.name} has no tokenizer.json to read --calibration with: put the model's beside it")
    try:
        text = user_path(options.calibration).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--calibration {options.calibration} is not a readable UTF-8 text: {error}") from error
    ids = codec.encode(text, add_special=False)
    length = min(WINDOW, max_len, len(ids) // 4)
    if length < 8 or options.windows < 4:
        raise ConfigError(
            f"--calibration {options.calibration} makes {len(ids)} tokens and --windows is {options.windows}: "
            "at least 32 tokens and 4 windows are needed"
        )
    whole = len(ids) // length
    windows = torch.tensor(ids[: whole * length]).view(whole, length)
    count = min(options.windows, whole)
    chosen = windows[torch.arange(count) * whole // count]
    measured = count // 4
    return chosen[:-measured], chosen[-measured:]


def _weight_bytes(path: Path) -> int:
    from outdraft.weights.digest import weight_files

    return sum(file.stat().st_size for file in weight_files(path))
