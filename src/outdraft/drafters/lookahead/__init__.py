"""Lookahead decoding: the target drafts for itself, by Jacobi iteration in spare rows of its own passes.

Fu, Bailis, Stoica and Zhang, "Break the sequential dependency of LLM inference using lookahead decoding", 2024,
https://arxiv.org/abs/2402.02057.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.lookahead.drafter import LookaheadOptions, build

METHOD = DrafterMethod(
    name="lookahead",
    summary="n-grams from Jacobi iteration in extra rows of the target's own passes (no model)",
    build=build,
    options=LookaheadOptions,
    paper=Paper(
        title="Break the sequential dependency of LLM inference using lookahead decoding",
        year=2024,
        link="https://arxiv.org/abs/2402.02057",
    ),
    shape_of=lambda options: "tree",
)
