"""Quantize a decoder map by map on text (`nn/quant/gptq.py`). Every map's integers are chosen for the inputs that the
maps before it, rounded already, will give it. Data in: a decoder and windows of ids; data out: a new decoder.
"""

from typing import Any

import torch
from torch import Tensor, nn

from outdraft.models.families.shared.naming import LINEAR_MAPS
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.quantize import Tell, quantized_names, quantized_shell
from outdraft.nn.context import CausalContext
from outdraft.nn.linear import Linear
from outdraft.nn.quant.config import QuantConfig
from outdraft.nn.quant.gptq import choose_integers
from outdraft.nn.quant.linear import QuantLinear

_TOGETHER = 8  # windows in one pass


class _Gram:
    """A hook that sums x x^T over the rows that enter a map."""

    def __init__(self, num_in: int, device: torch.device) -> None:
        self.sum = torch.zeros(num_in, num_in, dtype=torch.float64, device=device)

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        x = args[0].float()
        self.sum += x.t() @ x


@torch.no_grad()
def calibrate_decoder(
    decoder: Decoder, config: QuantConfig, windows: Tensor, progress: Tell = lambda done, count: None
) -> Decoder:
    """As `quantize_decoder`, with integers chosen on windows [W, T]."""
    shell = quantized_shell(decoder, config)
    names = quantized_names(shell)
    done = 0
    length = windows.shape[1]
    device = shell.embedding.device
    places = torch.arange(length, device=device)
    states = [
        shell.embed(ids.flatten().to(device), places.repeat(len(ids)))
        for ids in windows.split(_TOGETHER)  # type: ignore[no-untyped-call]
    ]

    def through(layer: int) -> list[Tensor]:
        after = []
        for h in states:
            batch = len(h) // length
            context = CausalContext(batch, length)
            after.append(shell.run(h, places.repeat(batch), context, start=layer, stop=layer + 1).hidden)
        return after

    for layer in range(decoder.config.num_layers):
        parts = [f"layers.{layer}.{part}" for part in LINEAR_MAPS if f"layers.{layer}.{part}" in names]
        for name in parts:  # a stand-in for what is not chosen yet
            _quant(shell, name).round(_weight(decoder, name))
        for name in parts:
            progress(done, len(names))
            gram = _Gram(_quant(shell, name).num_in, device)
            hook = _quant(shell, name).register_forward_pre_hook(gram)
            through(layer)
            hook.remove()
            _choose(decoder, shell, name, gram.sum)
            done += 1
        states = through(layer)
    if "lm_head" in names:
        gram = _Gram(_quant(shell, "lm_head").num_in, device)
        for h in states:
            gram(shell, (shell.final_norm(h),))
        _choose(decoder, shell, "lm_head", gram.sum)
    progress(len(names), len(names))
    shell.set_exact(decoder.exact)
    return shell


def _choose(decoder: Decoder, shell: Decoder, name: str, gram: Tensor) -> None:
    target = _quant(shell, name)
    target.fill(*choose_integers(_weight(decoder, name), gram, target.bits, target.group_size))


def _quant(shell: Decoder, name: str) -> QuantLinear:
    found = shell.get_submodule(name)
    assert isinstance(found, QuantLinear)
    return found


def _weight(decoder: Decoder, name: str) -> Tensor:
    found = decoder.get_submodule(name)
    assert isinstance(found, Linear)
    return found.weight
