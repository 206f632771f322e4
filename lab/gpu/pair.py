"""A random draft model and a target of the same distribution and a realistic size: every guess is right unless a rule
says no.

The target is the draft inflated (`models.inflate`): more channels and layers, the same logits up to rounding. So the
real rule accepts nearly all, and `SyntheticRule` accepts any share that one asks for.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.coins import Coins
from outdraft.core.packing import PackedDrafts
from outdraft.core.request import Request
from outdraft.core.verdict import Verdict
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.config import ModelConfig, llama_config
from outdraft.models.remake.inflate import inflate_decoder
from outdraft.options.errors import ConfigError
from outdraft.sampling.noise import fold, uniform
from outdraft.verify.shared.per_draft import read_best

SIZES = {"tiny": (1, 4), "1b": (4, 16), "3b": (6, 28), "7b": (8, 32)}  # width times, layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two decoders on one device."""

    target: Decoder
    draft: Decoder


def make_pair(size: str, *, device: str, dtype: torch.dtype) -> Pair:
    """Raises `ConfigError` for a size that is not in `SIZES`."""
    if size not in SIZES:
        raise ConfigError(f"size={size!r}: it is one of {', '.join(SIZES)}")
    width, depth = SIZES[size]
    draft = fill(Decoder(_draft_config(tiny=size == "tiny"), dtype, device))
    return Pair(target=inflate_decoder(draft, width=width, depth=depth), draft=draft)


def fill(decoder: Decoder) -> Decoder:
    """Random weights, made where they are; wide enough that greedy text wanders."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1)
            elif name == "embedding":
                parameter.normal_()
            else:
                parameter.normal_(std=1.5 / parameter.shape[1] ** 0.5)
    return decoder.eval().requires_grad_(False)


def _draft_config(*, tiny: bool) -> ModelConfig:
    if tiny:
        return llama_config(
            vocab_size=301,
            hidden_size=64,
            num_layers=2,
            num_heads=4,
            num_kv_heads=2,
            intermediate_size=128,
            max_len=512,
            tie_embeddings=False,
        )
    return llama_config(
        vocab_size=32000,
        hidden_size=512,
        num_layers=4,
        num_heads=8,
        num_kv_heads=2,
        intermediate_size=1536,
        max_len=4096,
        tie_embeddings=False,
    )


class SyntheticRule:
    """Accept each draft token with probability `rate`, whatever the target says: for clocks only, the text is void."""

    lossless = False

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def couples(self, request: Request) -> bool:
        return False

    def __call__(self, packed: PackedDrafts, p: Tensor, coins: Seq[Coins]) -> list[Verdict]:
        """Down the first children while the coin says so; then the target's best token, read as a real rule reads."""
        best = read_best(packed, p) or p.argmax(-1).tolist()
        verdicts = []
        for seq, tree, first in zip(packed.seqs, packed.trees, packed.node_starts, strict=False):
            if tree is None:
                continue
            node, root = 0, len(seq.tokens)
            while tree.children[node] and uniform(fold(7, root, node)) < self.rate:
                node = tree.children[node][0]
            verdicts.append(Verdict(tuple(tree.path(node)), best[first + node], bonus=not tree.children[node]))
        return verdicts
