"""A network at feature level, packed for the native kernels.

Data in: a network, whose linear maps may be rounded, and the target on the kernels; data out: a guesser. The matrices
are taken out of the network, so that memory holds them once.
"""

from dataclasses import replace

import torch
from torch import nn

from outdraft.drafters.shared.features.network import FeatureNet
from outdraft.drafters.shared.networks.rounding import rounded
from outdraft.kernels.decoder.guesser import Guesser
from outdraft.kernels.decoder.stack import Stack
from outdraft.models.networks.native import NativeDecoder, embedding_scale, norm_of, shape_of, weight_of
from outdraft.models.target.guess import NativeGuesser
from outdraft.nn.linear import Linear, LinearMap
from outdraft.nn.quant.config import QuantConfig


def pack_network(net: FeatureNet, target: NativeDecoder, grid: QuantConfig | None = None) -> NativeGuesser:
    """The network on the kernels, in the target's instruction set and threads.

    grid: what its maps were rounded to; a head that it borrows of the target is rounded so too, as a copy.
    """
    assert isinstance(net, nn.Module)
    parts, config = net.native_parts(target), net.shape
    head = parts.head
    if head is None and grid is not None:
        head = _rounded_head(target, grid)
    vocab = config.vocab_size if head is None else head.shape[0]
    shape = replace(shape_of(config), vocab=vocab)
    if parts.head is None:  # the target's, or a copy of it
        shape = replace(shape, logit_scale=target.config.logit_scale, logit_cap=target.config.logit_cap or 0.0)
    body = Stack(shape, len(parts.layers), threads=target.stack.threads, kind=target.kernels)
    for i, layer in enumerate(parts.layers):
        body.set_layer(i, layer)
    if head is not None:
        body.set_head(weight_of(head), None)
    ids = net.vocab
    if ids is not None and parts.head is None:  # the target's head scores all tokens, and these are guessed
        ids = torch.full((vocab,), -1).index_copy_(0, ids, ids)
    guesser = Guesser(
        body,
        target.stack if head is None else body,
        target.embedding if parts.embedding is None else parts.embedding.detach(),
        num_layers=len(parts.layers),
        embedding_scale=embedding_scale(target.config) if parts.embedding is None else 1.0,
        norm=None if parts.norm is None else norm_of(parts.norm),
        eps=config.norm_eps,
        bare_head=parts.norm is None,
        ids=ids,
        num_ids=target.config.vocab_size,
        entrance=parts.entrance,
    )
    _take_out_matrices(net)
    return NativeGuesser(guesser, parts.rope)


def _rounded_head(target: NativeDecoder, grid: QuantConfig) -> LinearMap | None:
    """A copy of the target's head; None where that has integers already."""
    weight = target.stack.read_head()
    if weight is None or not grid.covers("lm_head"):
        return None
    head = Linear(weight.shape[1], weight.shape[0], False, weight.dtype, weight.device)
    head.weight = nn.Parameter(weight, requires_grad=False)
    return rounded(head, grid, "lm_head")


@torch.no_grad()
def _take_out_matrices(net: nn.Module) -> None:
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LinearMap):
                setattr(module, name, nn.Identity())
