"""The size and depth of a tree that this machine verifies best: Sequoia's search with a measured verification curve.

Chen et al., "Sequoia: scalable, robust, and hardware-aware speculative decoding", 2024,
https://arxiv.org/abs/2402.12374.
"""

from outdraft.control.hardware_tree.policy import HardwareTreeOptions, build
from outdraft.core.method import Paper, PolicyMethod

METHOD = PolicyMethod(
    name="hardware_tree",
    summary="Sequoia's tree size and depth for the measured cost of a pass by its rows",
    build=build,
    options=HardwareTreeOptions,
    paper=Paper(
        title="Sequoia: scalable, robust, and hardware-aware speculative decoding",
        year=2024,
        link="https://arxiv.org/abs/2402.12374",
    ),
)
