"""From names to parts: load the target, build drafter, rule and policy, and check once that they fit each other."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from outdraft.cache.config import CacheConfig
from outdraft.codecs.gguf import codec_from_gguf
from outdraft.codecs.text import TextCodec
from outdraft.core.drafter import Drafter, arms_of
from outdraft.core.errors import CapabilityError, ConfigError
from outdraft.core.registry import find, make_options
from outdraft.core.target import after_attention
from outdraft.decode.executor import Overlapped, Serial
from outdraft.decode.step import Parts
from outdraft.engine.graphed import GraphedRunner
from outdraft.engine.runner import Runner
from outdraft.engine.speculative_config import Speculation
from outdraft.models.base import Decoder
from outdraft.models.network import Network
from outdraft.nn.capture import call_each_time, cuda_recorder
from outdraft.weights.gguf import GgufFile


def make_runner(
    network: Network,
    *,
    max_len: int | None,
    exact: bool,
    guarded: bool,
    enforce_eager: bool,
    cache: CacheConfig | None = None,
) -> Runner:
    """The target. On a GPU over static memory, recorded unless `enforce_eager`, where rows are not exact or guarded."""
    float_rows = cache is None or cache.dtype == "auto"
    if isinstance(network, Decoder) and network.device.type == "cuda" and not (exact or guarded) and float_rows:
        record = call_each_time if enforce_eager else cuda_recorder()
        return GraphedRunner(network, record=record, max_len=max_len, cache=cache)
    return Runner(network, max_len=max_len, exact=exact, cache=cache)


def load_codec(path: Path) -> TextCodec | None:
    """The tokenizer in a model directory, beside a GGUF file or in it; None if there is none that we read."""
    directory = path.parent if path.is_file() else path
    if TextCodec.exists(directory):
        return TextCodec.load(directory)
    return codec_from_gguf(GgufFile(path).get) if path.is_file() else None


def build_parts(
    runner: Runner,
    speculation: Speculation,
    *,
    guard: float = 0.0,
) -> tuple[Parts, dict[str, Any]]:
    """The four parts over a loaded target, and the resolved configuration as plain data."""
    rule = find("verifier", speculation.verifier)
    pacing = find("policy", speculation.pacing)
    method = find("drafter", speculation.drafter)
    pace = dict(speculation.policy_options)
    if speculation.num_speculative_tokens is not None:
        if isinstance(speculation.num_speculative_tokens, bool) or speculation.num_speculative_tokens < 0:
            raise ConfigError(
                f"num_speculative_tokens={speculation.num_speculative_tokens!r} is out of range: it must be at least 0"
            )
        pace["num_speculative_tokens"] = speculation.num_speculative_tokens
    options = {
        "drafter": make_options(method, speculation.drafter_options),
        "verifier": make_options(rule, speculation.verifier_options),
        "policy": make_options(pacing, pace),
    }
    drafter: Drafter = method.build(options["drafter"], runner)
    for tap in (*drafter.needs.taps, *drafter.needs.prompt_taps):
        if not after_attention(runner.num_layers) < tap <= runner.num_layers:
            raise CapabilityError(
                f"drafter {method.name!r} taps layer {tap}, the target has {runner.num_layers} layers"
            )
    parts = Parts(
        target=runner,
        drafter=drafter,
        verifier=rule.build(options["verifier"]),
        policy=pacing.build(options["policy"], arms_of(method, drafter)),
        soft=rule.soft(options["verifier"]),
        guard=guard,
        executor=Overlapped() if hasattr(drafter, "ahead") else Serial(),
    )
    resolved: dict[str, Any] = {
        kind: {"name": chosen.name, **asdict(options[kind])}
        for kind, chosen in (("drafter", method), ("verifier", rule), ("policy", pacing))
    }
    resolved["drafter"] |= method.describe(drafter)
    resolved["verifier"]["lossless"] = parts.verifier.lossless  # some rules are lossy on demand
    if speculation.recipe:
        resolved["recipe"] = dict(speculation.recipe)
    return parts, resolved
