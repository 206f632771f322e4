"""What one pass shows of a model of `transformers`: which layer attends how, and where layers and final norm are.

    layer i, its attention      seen in the calls of our function: heads, window, soft cap, sinks, arguments
    final norm                  the part of the decoder whose result is the decoder's result

Data in: a model and a few token ids; data out: an `Anatomy`. Whatever does not fit is a `ModelLoadError` by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from outdraft.models.adapter.attention import KNOWN, Attending, ContextAttention, HeadShape, attending, removing
from outdraft.models.adapter.refuse import refuse_own_attention, unknown_arguments
from outdraft.nn.context import CausalContext
from outdraft.options.errors import ModelLoadError


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """Where the parts of a model of transformers are."""

    decoder: nn.Module  # embeddings to final norm
    layers: tuple[nn.Module, ...]
    norm: nn.Module | None  # None: the decoder's result is the head's input as it is
    shape: HeadShape  # large enough for every layer
    windows: tuple[int | None, ...]  # () : every layer sees the whole past


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One layer's call of our attention function."""

    module: nn.Module
    shape: HeadShape
    options: Mapping[str, Any]
    masked: bool


class _Recorder:
    """`Attending` that notes every call. Each layer attends causally over the pass's own rows, by its own shape."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]) -> Tensor:
        shape = HeadShape(
            num_heads=q.shape[1], num_kv_heads=k.shape[1], head_dim=max(q.shape[-1], v.shape[-1]), value_dim=v.shape[-1]
        )
        self.calls.append(_Call(module=module, shape=shape, options=dict(options), masked=mask is not None))
        alone: Attending = ContextAttention(CausalContext(1, q.shape[2]), shape, q.dtype)
        return alone.attend(module, q, k, v, mask, options)


@torch.inference_mode()
def dissect(model: Any, kind: str, ids: Tensor) -> Anatomy:
    """One pass over ids [N]. `kind`: the `model_type`, for messages."""
    decoder = model.get_decoder()
    results: dict[nn.Module, Tensor] = {}

    def note(module: nn.Module, args: Any, out: Any) -> None:
        if isinstance(out, Tensor):
            results[module] = out

    handles = [part.register_forward_hook(note) for part in decoder.children()]
    recorder = _Recorder()
    places = torch.arange(len(ids), device=ids.device)
    with removing(handles), attending(recorder):
        final = decoder(input_ids=ids[None], position_ids=places[None], use_cache=False)[0]
    name = type(model).__name__
    calls = _in_order(recorder.calls, kind, name, model.config.get_text_config())
    shape = HeadShape(
        num_heads=max(call.shape.num_heads for call in calls),
        num_kv_heads=max(call.shape.num_kv_heads for call in calls),
        head_dim=max(call.shape.head_dim for call in calls),
        value_dim=max(call.shape.value_dim for call in calls),
    )
    windows = tuple(call.options.get("sliding_window") for call in calls)
    return Anatomy(
        decoder=decoder,
        layers=_find_layers(decoder, [call.module for call in calls], name),
        norm=next((part for part, out in results.items() if out is final), None),
        shape=shape,
        windows=windows if any(windows) else (),
    )


def _in_order(calls: list[_Call], kind: str, name: str, config: Any) -> list[_Call]:
    """The calls by layer, each layer once and each understood."""
    count = config.num_hidden_layers
    if not calls:
        refuse_own_attention(kind, name)
    told = [getattr(call.module, "layer_idx", None) for call in calls]
    if told != list(range(count)):
        raise ModelLoadError(
            f"model_type={kind!r} cannot be run: of the {count} layers of {name}, only {told} call transformers' "
            "attention interface; any other layer keeps a state that outdraft cannot roll back"
        )
    types = getattr(config, "layer_types", None) or [None] * count
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    if window and types[0] is None and not any(call.options.get("sliding_window") for call in calls):
        types = ["sliding_attention"] * count
    for i, call in enumerate(calls):
        strange = unknown_arguments(call.options.items(), KNOWN)
        if call.masked:
            strange.insert(0, "attention_mask")
        if call.options.get("is_causal") is False:
            strange.insert(0, "is_causal=False")
        if strange:
            raise ModelLoadError(
                f"model_type={kind!r} cannot be run: layer {i} of {name} passes {', '.join(strange)} to its attention, "
                "which outdraft's attention does not support"
            )
        if types[i] == "sliding_attention" and not call.options.get("sliding_window"):
            raise ModelLoadError(
                f"model_type={kind!r} cannot be run: layer {i} of {name} has a sliding window that only its attention "
                "mask holds, and outdraft makes masks of its own"
            )
    return calls


def _find_layers(decoder: nn.Module, attentions: list[nn.Module], name: str) -> tuple[nn.Module, ...]:
    """The list of layers in which the attentions stand, one in each."""
    for part in decoder.modules():
        if isinstance(part, nn.ModuleList) and len(part) == len(attentions):
            pairs = zip(part, attentions, strict=True)
            if all(attention in set(layer.modules()) for layer, attention in pairs):
                return tuple(part)
    raise ModelLoadError(f"{name} of transformers has no list of layers with one attention in each")
