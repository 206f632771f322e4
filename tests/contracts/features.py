"""The settings of a request, one row each, for the test of all pairs: a new one is one more row.

A feature is what a request asks: `settings` of `SamplingParams`, and `request`, other arguments of `generate` (a
constraint, say). `needs` names the features without which it says nothing or is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from outdraft import SamplingParams

VOCAB = 4096  # of zoo:target
COMMON = tuple(range(256, 700))  # frequent tokens, no end among them


class Thirds:
    """A constraint that leaves two thirds of the tokens, by the last one and by how many there are."""

    def __init__(self):
        self._ids = torch.arange(VOCAB)
        self._output = []

    def advance(self, token):
        self._output.append(token)

    def allowed(self, path):
        written = [*self._output, *path]
        return (self._ids + sum(written[-1:]) + len(written)) % 3 != 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One thing that a request may ask for."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()  # with these it is refused, or leaves nothing to choose
    shows: bool = True  # it changes the text of the prompts here; False: what comes with the text, or nothing


FEATURES = {
    one.name: one
    for one in (
        Feature(name="temperature", settings={"temperature": 0.9}, needs=("seed",)),
        Feature(name="seed", settings={"seed": 5}, shows=False),
        Feature(name="top_k", settings={"top_k": 2}, needs=("temperature",)),
        Feature(name="top_p", settings={"top_p": 0.4}, needs=("temperature",)),
        Feature(name="min_p", settings={"min_p": 0.3}, needs=("temperature",)),
        Feature(name="typical_p", settings={"typical_p": 0.3}, needs=("temperature",)),
        Feature(name="n", settings={"n": 2}, needs=("temperature",)),
        Feature(name="stop", settings={"stop": (" the", ",", "\n")}),
        Feature(name="stop_token_ids", settings={"stop_token_ids": (265, 12, 14)}),
        Feature(name="ignore_eos", settings={"ignore_eos": True}, shows=False),
        Feature(name="min_tokens", settings={"min_tokens": 9, "stop_token_ids": (265, 12, 14)}),
        Feature(name="logit_bias", settings={"logit_bias": {265: -9.0, 300: 4.0, 12: float("-inf")}}),
        Feature(name="repetition_penalty", settings={"repetition_penalty": 1.6}),
        # a negative one asks for a token again, a positive one against it
        Feature(name="presence_penalty", settings={"presence_penalty": 1.5}),
        Feature(name="frequency_penalty", settings={"frequency_penalty": -1.5}),
        Feature(name="logprobs", settings={"logprobs": 2}, shows=False),
        Feature(name="prompt_logprobs", settings={"prompt_logprobs": 1}, shows=False),
        Feature(name="logprobs_mode", request={"logprobs_mode": "processed_logits"}, needs=("logprobs",), shows=False),
        Feature(name="banned_token_ids", settings={"banned_token_ids": (265, 12, 14)}),
        Feature(name="bad_words", settings={"bad_words": ("the", "a little", (14, 10))}),
        Feature(name="allowed_token_ids", settings={"allowed_token_ids": (*COMMON, 0, 10, 12, 14)}),
        Feature(name="forced_prefix", settings={"forced_prefix": (300, 310, 300)}),
        Feature(name="guidance_scale", settings={"guidance_scale": 1.7}),
        Feature(name="negative_prompt", request={"negative_prompt": "A merry tale:"}, needs=("guidance_scale",)),
        Feature(name="constraint", request={"constraint": Thirds}),
        Feature(
            name="structured_outputs",
            settings={"structured_outputs": {"regex": "([a-m ,.]|\\n)*"}},
            excludes=("constraint",),
        ),
    )
}


def together(names: Iterable[str]) -> list[Feature] | None:
    """The features of these names and what they need; None where one excludes another."""
    wanted: dict[str, None] = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        wanted[name] = None
        todo += [other for other in FEATURES[name].needs if other not in wanted]
    found = [one for name, one in FEATURES.items() if name in wanted]
    return None if any(set(one.excludes) & wanted.keys() for one in found) else found


def asked(features: Iterable[Feature], *, max_tokens: int) -> tuple[SamplingParams, dict[str, Any]]:
    """Settings, and the other arguments of `generate`."""
    settings: dict[str, Any] = {"max_tokens": max_tokens}
    request: dict[str, Any] = {}
    for one in features:
        settings |= one.settings
        request |= one.request
    return SamplingParams(**settings), request
