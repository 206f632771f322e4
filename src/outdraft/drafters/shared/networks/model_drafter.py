"""A drafter with a draft model of its own: the verbs that keep the model's memory in step with the texts.

Data in: sequences; data out: the model's memory of each, which is filled when the first guess is wanted.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

from outdraft.core.drafter import Traits
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.networks.draft_model import DraftModel
from outdraft.drafters.shared.networks.load_draft import ModelOptions, describe_network, load_draft, weights_of
from outdraft.drafters.shared.plain import PlainDrafter
from outdraft.models.networks.port import TargetPort


class ModelDrafter(PlainDrafter):
    """`traits`: what it can do, besides having the model's weights."""

    def __init__(self, model: DraftModel, **traits: Any) -> None:
        self.model = model
        self.traits = Traits(weights=(weights_of(model.decoder),), **traits)

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Memory for each; the prompt is read when the first guess is wanted."""
        for seq in seqs:
            self.model.add(seq.id)

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self.model.free(seq.id)


def open_model(options: ModelOptions, port: TargetPort, *, same_vocab: bool = True) -> DraftModel:
    """The draft model that the options name. Raises `CapabilityError` if its ids must be the target's and are not."""
    return DraftModel(load_draft(options, port, same_vocab=same_vocab), cache=port.cache)


def describe_model(drafter: ModelDrafter) -> Mapping[str, Any]:
    """What the model's options came to."""
    return describe_network(drafter.model.decoder)
