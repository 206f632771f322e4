"""EdgeLLM: branches of a draft tree, paced by their probability, that go on growing while the target judges.

Xu et al., "EdgeLLM: fast on-device LLM inference with speculative decoding", 2025 (first "LLMCad: fast and scalable
on-device large language model inference", 2023, https://arxiv.org/abs/2309.04255).
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.edgellm.drafter import EdgeLlmDrafter, EdgeLlmOptions, build
from outdraft.drafters.shared.networks.load_draft import describe_network


def _describe(drafter: EdgeLlmDrafter) -> dict[str, object]:
    return dict(describe_network(drafter.model.decoder))


METHOD = DrafterMethod(
    name="edgellm",
    summary="a smaller model grows a tree at its likeliest branch, before the target's pass and during it",
    build=build,
    options=EdgeLlmOptions,
    paper=Paper(
        title="LLMCad: fast and scalable on-device large language model inference",
        year=2023,
        link="https://arxiv.org/abs/2309.04255",
    ),
    describe=_describe,
    shape_of=lambda options: "tree",
)
