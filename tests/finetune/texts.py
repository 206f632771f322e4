"""A small target, packed rows of texts for it, and changes that show."""

import torch

from outdraft.core.learner import Moment
from outdraft.nn.context import CausalContext
from outdraft.testing.tiny import tiny_model
from outdraft.training.packing import PackedRows

VOCAB, STEPS = 31, 10


def small(layers=4, **options):
    return tiny_model(vocab=VOCAB, layers=layers, seed=1, dtype=torch.float32, **options)


def rows(step=None, seed=0, first=0, count=2):
    """Two rows; in the second, two texts."""
    ids = torch.randint(VOCAB, (2, 13), generator=torch.Generator().manual_seed(seed))
    documents = torch.tensor([(0,) * 13, (0,) * 5 + (1,) * 8])
    part = slice(first, first + count)
    moment = None if step is None else Moment(step=step, steps=STEPS, seed=step, first=first)
    counts = documents[:, 1:] == documents[:, :-1]
    return PackedRows(ids=ids[part], documents=documents[part], counts=counts[part], moment=moment)


def bend(lora, seed=5, by=0.3):
    """Changes of the target that show."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for factor in lora.parameters():
            factor += by * torch.randn(factor.shape, generator=generator)


def alone(network, tokens, **kinds):
    """States [T, D] of one text by itself, at positions 0, 1, ..."""
    ids, places = torch.tensor(tokens), torch.arange(len(tokens))
    return network.run(network.embed(ids, places), places, CausalContext(1, len(tokens)), **kinds)
