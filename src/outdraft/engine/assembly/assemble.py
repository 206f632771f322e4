"""Build a running engine from the user's settings: load the weights, build the parts, check that they fit.

    OpenedModel -> network -> runner (the target) -> drafter, rule, policy over it -> engine

An engine runs one variant of the weights, or with elastic precision the first of several levels that leaves memory
free. Data out: the engine, and its configuration as plain data.
"""

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch

from outdraft.cache.config import CacheConfig
from outdraft.cache.state import refuse_over_states
from outdraft.core.drafter import Drafter, arm_of
from outdraft.core.policy import Arm
from outdraft.core.registry import AnyDrafter, read_options
from outdraft.core.target import after_attention
from outdraft.decode.executor import Overlapped, Serial
from outdraft.decode.guard import GuardedTarget
from outdraft.decode.parts import Parts
from outdraft.drafters.shared.renewing import build_drafter, newest
from outdraft.engine.assembly.elastic import ElasticEngine, elastic_ladder
from outdraft.engine.assembly.memory import read_memory
from outdraft.engine.assembly.other_target import note_other_target
from outdraft.engine.assembly.precision import DRAFT_INT4, ELASTIC, FULL, MIXED, ElasticOptions
from outdraft.engine.assembly.remembered import KeepingPolicy, remembering
from outdraft.engine.assembly.setup import Setup
from outdraft.engine.assembly.variant import Variant
from outdraft.engine.graphed import GraphedRunner
from outdraft.engine.guided import guided
from outdraft.engine.loop import Engine
from outdraft.engine.naming.combination import Combination
from outdraft.engine.naming.default import fitting, without_found
from outdraft.engine.room import room_of
from outdraft.engine.runner import Runner
from outdraft.kernels.threads import torch_threads
from outdraft.models.adapter.network import TransformersNetwork, refuse_parts
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.network import Network
from outdraft.models.networks.port import TargetOrigin
from outdraft.models.remake.quantize import mixed_precision
from outdraft.models.remake.streamed import load_streamed
from outdraft.models.target.open_network import OpenedModel, find_bound, read_network
from outdraft.nn.capture import call_each_time, cuda_recorder
from outdraft.options.errors import CapabilityError, OutdraftError
from outdraft.options.speculative import Held

_UNKNOWN = 2**30  # bytes for a pool where free memory cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """An engine, and what runs in it as plain data."""

    engine: Engine
    config: dict[str, Any]
    native: bool  # the kernels compute, and PyTorch has little to do


def make_engine(setup: Setup, model: OpenedModel) -> Assembled:
    """Read the model's weights and build on them."""
    if setup.precision == ELASTIC:
        return _elastic(setup, model)
    small_draft = setup.precision == DRAFT_INT4
    combination = setup.combination.rounded("int4") if small_draft else setup.combination
    network = _read(setup, model, setup.precision)
    if combination.instead is not None:
        combination = fitting(network, combination, setup.guard)
    return _engine_over(setup, network, combination)


def engine_beside(setup: Setup, network: Network) -> Assembled:
    """Another engine over weights that are loaded; `setup.precision` is the name of theirs."""
    return _engine_over(setup, network, fitting(network, setup.combination, setup.guard))


def build_variant(setup: Setup, network: Network, combination: Combination) -> Variant:
    """Parts over weights that are loaded."""
    exact = setup.exact and network.exact
    runner = make_runner(
        network,
        max_len=setup.max_len,
        exact=exact,
        enforce_eager=setup.enforce_eager,
        cache=setup.cache,
        origin=TargetOrigin(source=setup.directory, codec=setup.codec, renews=setup.renews),
    )
    name = "+".join(part for part in (network.config.variant, setup.cache.variant) if part)
    dtype = str(runner.dtype).removeprefix("torch.")
    is_graphed = isinstance(runner, GraphedRunner)
    guard = find_bound(network, setup.guard)
    parts = _build_parts(runner, combination, guard)
    config = {
        "model": setup.directory.name,
        "variant": name,
        "dtype": dtype,
        "device": str(runner.device),
        "exact": exact,
        "kernels": network.kernels,
        "guard": guard,
        "max_model_len": runner.max_len,
        "model_impl": "transformers" if isinstance(network, TransformersNetwork) else "outdraft",
        "weights_memory": setup.weights_memory,
        "graphs": is_graphed and not setup.enforce_eager,
        "kv_cache": runner.cache_config.layout,
        "prefix_caching": runner.cache_config.prefixes,
        "kv_cache_dtype": dtype if setup.cache.dtype == "auto" else setup.cache.dtype,
        **_describe(combination, parts),
    }
    if isinstance(parts.policy, KeepingPolicy):
        parts = replace(parts, policy=remembering(parts.policy, setup.directory, config))
    return Variant(parts=parts, name=name, config=config)


def _build(setup: Setup, network: Network, combination: Combination) -> Variant:
    """The variant; where the user did not ask for a draft that lies beside the model and does not fit, without it."""
    try:
        return build_variant(setup, network, combination)
    except OutdraftError as error:
        return without_found(combination, error, lambda bare: build_variant(setup, network, bare))


def _read(setup: Setup, model: OpenedModel, level: str) -> Network:
    if setup.weights_memory is not None and model.pieces is not None:
        return load_streamed(model.pieces, setup.weights_memory)
    rounding = (lambda config, native: mixed_precision(config.num_layers)) if level == MIXED else None
    return read_network(model, exact=setup.exact, rounding=rounding)


def make_runner(
    network: Network,
    *,
    max_len: int | None,
    exact: bool,
    enforce_eager: bool,
    cache: CacheConfig | None = None,
    origin: TargetOrigin | None = None,
) -> Runner:
    """The target. On a GPU over static memory, recorded unless `enforce_eager`, where rows are not exact."""
    cache = _sized(_settled(cache or CacheConfig(), network), network)
    float_rows = cache.dtype == "auto"
    if isinstance(network, Decoder) and network.device.type == "cuda" and not exact and float_rows:
        record = call_each_time if enforce_eager else cuda_recorder(network.device)
        return GraphedRunner(network, record=record, max_len=max_len, cache=cache, origin=origin)
    return Runner(network, max_len=max_len, exact=exact, cache=cache, origin=origin)


def _settled(cache: CacheConfig, network: Network) -> CacheConfig:
    """Where it is open whether to keep rows for later texts, the native kernels do: they read pages as they lie."""
    if cache.prefixes is not None:
        return cache
    is_native = network.kernels != "pytorch"
    return replace(cache, prefixes=is_native, layout="paged" if is_native else cache.layout)


def _sized(cache: CacheConfig, network: Network) -> CacheConfig:
    """Rows that are kept for later texts need a size: if none was given, a quarter of the memory that is free now.

    The system counts weights that are mapped from a file as free, so half of what would be left without them is the
    most. A CPU's memory is taken when it is written to: what is never used costs nothing.
    """
    if not cache.prefixes or cache.memory is not None or cache.num_pages is not None:
        return cache
    if network.device.type == "cuda":
        return replace(cache, memory=torch.cuda.mem_get_info(network.device)[0] // 4, is_given=False)
    try:
        free = read_memory().free
    except CapabilityError:
        free = 4 * _UNKNOWN
    left = max(free - network.pass_bytes, free // 8)
    return replace(cache, memory=min(free // 4, left // 2), is_given=False)


def _build_parts(runner: Runner, combination: Combination, guard: float) -> Parts:
    """Drafter, rule and policy over the target. Raises `CapabilityError` for a drafter that taps what is not there."""
    method, rule, pacing = combination.drafter, combination.rule, combination.policy
    whole = method.shape_of(combination.drafter_options)
    build, port = (method.build, None) if whole == "nothing" else (partial(build_drafter, method), runner.port)
    drafter: Drafter = build(combination.drafter_options, port)
    for tap in (*drafter.needs.taps, *drafter.needs.prompt_taps):
        if not after_attention(runner.num_layers) < tap <= runner.num_layers:
            raise CapabilityError(
                f"drafter {method.name!r} reads the state after layer {tap}, but the target has "
                f"{runner.num_layers} layers"
            )
    if isinstance(runner.decoder, TransformersNetwork):
        refuse_parts(method.name, drafter.needs, runner.decoder.config.architecture)
    if not runner.cache.can_trim:
        refuse_over_states(method.name, drafter.needs, guard)
    if runner.shared is not None:
        runner.shared.needs = drafter.needs
    if drafter.traits.home or drafter.traits.inner:
        note_other_target(drafter, runner.decoder)
    arms = arms_of(method, drafter)
    for arm in arms:
        if (arm.shape or whole) == "tree" and "tree" not in rule.judges:
            raise CapabilityError(
                f"verifier {rule.name!r} judges chains only, and drafter {arm.name!r} drafts trees here: let it draft "
                "chains (an option as width=1), or take a verifier for trees, such as 'auto'"
            )
    verifier = rule.build(combination.rule_options)
    is_guarded = guard > 0 and verifier.lossless
    return Parts(
        target=GuardedTarget(runner, guard) if is_guarded else runner,
        guide=partial(guided, guard=guard if is_guarded else None),
        drafter=drafter,
        verifier=verifier,
        policy=pacing.build(combination.policy_options, arms),
        soft=rule.soft(combination.rule_options),
        reads_confidence=rule.reads_confidence(combination.rule_options),
        executor=Serial() if drafter.traits.ahead is None else Overlapped(),
        room=room_of(runner),
        held=Held(
            methods=tuple(arm.name for arm in arms),
            shapes=tuple(arm.shape or whole for arm in arms),
            watched=tuple(arm.name for arm in arms if arm.peek is None),
            verifier=rule.name,
            prefers_drawn=rule.prefers_drawn,
            policy=pacing.name,
            num_speculative_tokens=0 if whole == "nothing" else combination.policy_options.num_speculative_tokens,
        ),
    )


def arms_of(method: AnyDrafter, drafter: Drafter) -> tuple[Arm, ...]:
    """Among whom a policy may choose: the drafters that it holds, or itself alone."""
    return method.arms(drafter) or (arm_of(drafter, method.name),)


def _engine_over(setup: Setup, network: Network, combination: Combination) -> Assembled:
    variant = _build(setup, network, combination)
    return Assembled(
        engine=Engine(variant.parts, variant=variant.name, **_settings(setup, network)),
        config={**variant.config, "precision": {"name": setup.precision}},
        native=network.kernels != "pytorch",
    )


def _elastic(setup: Setup, model: OpenedModel) -> Assembled:
    """One engine that changes its variant between requests."""
    options = read_options(ElasticOptions, setup.precision_options, f"precision {ELASTIC!r}")
    network = _read(setup, model, FULL)
    setup = replace(setup, combination=fitting(network, setup.combination, setup.guard))
    first = _build(setup, network, setup.combination)
    ladder = elastic_ladder(setup, network, first.parts.drafter, options)
    settings, is_native = _settings(setup, network), network.kernels != "pytorch"
    del network
    threads = torch.get_num_threads()

    def load(level: str) -> Variant:
        small_draft = DRAFT_INT4 in ladder.levels and level != FULL
        combination = setup.combination.rounded("int4") if small_draft else setup.combination
        with torch_threads(threads):  # a step has one
            return _build(setup, _read(setup, setup.open_model(), level), combination)

    engine = ElasticEngine(first, load, ladder, **settings)
    return Assembled(engine=engine, config=engine.config, native=is_native)


def _settings(setup: Setup, network: Network) -> dict[str, Any]:
    """What an engine is given besides its parts: the tokenizer's end tokens count beside the model's own."""
    own = setup.codec.eos_token_ids if setup.codec is not None else ()
    ends = frozenset((*own, *network.config.eos_ids))
    return {"eos_token_ids": ends, "scheduling": setup.scheduling, "isolates": True}


def _describe(combination: Combination, parts: Parts) -> dict[str, Any]:
    """The plug-ins that run and all their options, as plain data."""
    drafter, rule, policy = combination.drafter, combination.rule, combination.policy
    own = drafter.describe(newest(parts.drafter)) if parts.guesses else {}
    made: dict[str, Any] = {
        "drafter": {"name": drafter.name, **asdict(combination.drafter_options), **own},
        "verifier": {"name": rule.name, **asdict(combination.rule_options), "lossless": parts.verifier.lossless},
        "policy": {"name": policy.name, **asdict(combination.policy_options)},
    }
    return {**made, "recipe": dict(combination.recipe)} if combination.recipe else made
