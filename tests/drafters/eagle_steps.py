"""Drafting by full recomputation: what a network says step after step, standing on its own outputs."""

from typing import Any

import torch
from torch import Tensor

from outdraft.nn.context import CausalContext


@torch.no_grad()
def drafted(net: Any, embed: Any, taps: list[Tensor], ids: list[int], steps: int) -> list[Tensor]:
    """Logits [V] after the text and after each of `steps` best tokens. `taps`: [T, D] each; `ids`: T + 1 tokens."""
    features, tokens, said = net.fuse(taps), list(ids[1:]), []
    for _ in range(steps + 1):
        places = torch.arange(len(tokens))
        g = net.run(embed(torch.tensor(tokens), places), features, places, CausalContext(1, len(tokens)))
        logits = net.logits(g[-1:])[0]
        if net.vocab is not None:
            logits = torch.full((int(net.vocab.max()) + 1,), -torch.inf).index_copy(0, net.vocab, logits)
        said.append(logits)
        tokens.append(int(logits.argmax()))
        features = torch.cat((features, net.carry(g[-1:])))
    return said
