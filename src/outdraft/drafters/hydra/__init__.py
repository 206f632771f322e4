"""Hydra: heads on the target's last state, each of which knows the tokens that were guessed before its own.

Ankner et al., "Hydra: sequentially-dependent draft heads for Medusa decoding", 2024, https://arxiv.org/abs/2402.05109.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.hydra.drafter import build
from outdraft.drafters.shared.heads.config import HeadOptions, head_shape

METHOD = DrafterMethod(
    name="hydra",
    summary="heads on the target's last state, each of which knows the tokens guessed before; a chain or a tree",
    build=build,
    options=HeadOptions,
    paper=Paper(
        title="Hydra: sequentially-dependent draft heads for Medusa decoding",
        year=2024,
        link="https://arxiv.org/abs/2402.05109",
    ),
    shape_of=head_shape,
    forms={"chain": {"width": 1}, "tree": {"width": 4}},
)
