"""Low-rank changes of a target's matrices, which learn while the target itself is left as it is.

    W  ->  W + (alpha / rank) B A        A [rank, in] drawn, B [out, rank] of zeros: at first nothing changes

Hu et al., "LoRA: low-rank adaptation of large language models", 2021, https://arxiv.org/abs/2106.09685. Every matrix of
attention and feed-forward has its own pair; embeddings, norms and the head stay. A pass rounds the sum to the target's
own number format, so it computes with the very matrices that `merged` writes.
"""

import copy
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from outdraft.models.families.shared.naming import LINEAR_MAPS, Entry, stored_shapes
from outdraft.models.files.peft_lora import linear_entries, open_lora, write_lora
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.config import ModelConfig, refuse_other_parts
from outdraft.models.remake.lora_config import LoraConfig
from outdraft.nn.linear import Linear, LinearMap
from outdraft.options.errors import CapabilityError, ModelLoadError

FOLDER = "lora"


class Factors(nn.Module):
    """A and B of one map, float32."""

    def __init__(self, num_in: int, num_out: int, rank: int, device: torch.device) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(rank, num_in, device=device))
        self.b = nn.Parameter(torch.zeros(num_out, rank, device=device))


class Lora(nn.Module):
    """The changes of low rank of all layers: a pair of factors for each map."""

    def __init__(self, config: LoraConfig, target: Decoder, device: torch.device | None = None) -> None:
        super().__init__()
        self.config = config
        place = device or target.device
        self.layers = nn.ModuleList()
        for block in target.layers:
            maps = {name: getattr(block, name).shape for name in LINEAR_MAPS}
            self.layers.append(
                nn.ModuleDict({name: Factors(n_in, n_out, config.rank, place) for name, (n_out, n_in) in maps.items()})
            )

    def pair(self, layer: int, name: str) -> Factors:
        """The two low-rank factors of one map of a layer."""
        found = self.layers[layer][name]  # type: ignore[index]
        assert isinstance(found, Factors)
        return found


class LoraLinear(LinearMap):
    """A map whose matrix is a frozen one and a low-rank change."""

    def __init__(self, base: Linear, factors: Factors, scale: float) -> None:
        super().__init__()
        self.base, self.factors, self.scale = base, factors, scale
        self.bias = base.bias

    @property
    def is_trained(self) -> bool:
        return True

    def matrix(self) -> Tensor:
        with torch.autocast(self.device.type, enabled=False):
            change = self.scale * (self.factors.b @ self.factors.a)
            return (self.base.weight.float() + change).to(self.base.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        return self.base.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.base.dtype

    @property
    def device(self) -> torch.device:
        return self.base.device


def require_plain(config: ModelConfig) -> None:
    """Raise `CapabilityError` for rounded weights, `ConfigError` for layers of other parts."""
    refuse_other_parts(config, "a low-rank change")
    if config.quant is not None:
        raise CapabilityError(
            "low-rank changes cannot be added to rounded weights: take the model that they were rounded from"
        )


def new_lora(target: Decoder, config: LoraConfig, seed: int) -> Lora:
    """Pairs that change nothing yet. Raises `CapabilityError` for a target of rounded weights."""
    require_plain(target.config)
    lora, generator = Lora(config, target), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in lora.named_parameters():
            if name.endswith(".a"):
                drawn = torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5
                parameter.copy_(drawn)
    return lora


def changed(target: Decoder, lora: Lora) -> Decoder:
    """The target with its changes: parameters are shared, not copied, and `target` stays as it is."""
    shared = {id(one): one for one in (*target.parameters(), *target.buffers())}
    made = copy.deepcopy(target, shared | _packed(target))
    for layer, block in enumerate(made.layers):
        for name in LINEAR_MAPS:
            base = getattr(block, name)
            assert isinstance(base, Linear)
            base.unpack()
            setattr(block, name, LoraLinear(base, lora.pair(layer, name), lora.config.scale))
    made.exact = False
    return made


@torch.no_grad()
def merged(target: Decoder, lora: Lora) -> Decoder:
    """A target of its own whose matrices are the changed ones, in the target's number format."""
    made = copy.deepcopy(target, _packed(target))
    student = changed(target, lora)
    for mine, theirs in zip(made.layers, student.layers, strict=True):
        for name in LINEAR_MAPS:
            linear, sum_of = getattr(mine, name), getattr(theirs, name)
            linear.unpack()
            linear.tile = None
            linear.weight.copy_(sum_of.matrix())
    made.exact = False
    return made


def save_lora(lora: Lora, target: Decoder, directory: Path) -> None:
    """`directory`/lora, as PEFT reads it. Matrices that are one map here share their A, which each gets a copy of."""
    pairs = dict[str, tuple[Tensor, Tensor]]()
    for factors, entry in _entries(lora, target):
        pairs |= {
            name.removesuffix(".weight"): (factors.a.detach(), b) for name, b in entry.split(factors.b.detach()).items()
        }
    write_lora(directory / FOLDER, pairs, rank=lora.config.rank, alpha=lora.config.alpha)


def has_lora(directory: Path) -> bool:
    """Whether there are any in `directory`."""
    return (directory / FOLDER).exists()


def load_lora(directory: Path, target: Decoder) -> Lora:
    """The changes in `directory`/lora, bit for bit, to learn on.

    Raises `ModelLoadError` where there are none, for a target of other sizes, and for those that PEFT itself learned,
    whose matrices share no A.
    """
    adapter = open_lora(directory / FOLDER)
    lora, known = Lora(LoraConfig(rank=adapter.r, alpha=adapter.lora_alpha), target), set[str]()
    for factors, entry in _entries(lora, target):
        modules = [name.removesuffix(".weight") for name in entry.theirs]
        shapes = stored_shapes(entry, (len(factors.b), factors.a.shape[1]))
        pairs = [adapter.pair(name, shape) for name, shape in zip(modules, shapes, strict=True)]
        known.update(modules)
        same = (lora.config.scale, adapter.r)
        if any((one.scale, len(one.a)) != same or not torch.equal(one.a, pairs[0].a) for one in pairs):
            raise ModelLoadError(
                f"{adapter.origin} was not written by outdraft (an A, rank or scale of its own for one of "
                f"{', '.join(modules)}), and is not trained further: merge it first, with outdraft merge"
            )
        with torch.no_grad():
            factors.a.copy_(pairs[0].a)
            factors.b.copy_(entry.join([one.b for one in pairs]))
    adapter.refuse_others(known)
    return lora.eval().requires_grad_(False)


def _entries(lora: Lora, target: Decoder) -> Iterator[tuple[Factors, Entry]]:
    """The factors of each map, and where it stands in the target's files."""
    for name, entry in linear_entries(target.config).items():
        if name.startswith("layers."):
            _, layer, part = name.split(".")
            yield lora.pair(int(layer), part), entry


def _packed(target: Decoder) -> dict[int, Tensor]:
    """Weights that were laid out for inference, which cannot be copied."""
    maps = (part for part in target.modules() if isinstance(part, LinearMap))
    return {id(one.packed): one.packed for one in maps if one.packed is not None}
