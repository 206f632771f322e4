"""Block networks: what the released package says of tiny ones, slot by slot."""

from pathlib import Path

import pytest
import torch

from outdraft.core.learner import Lesson
from outdraft.core.learner_registry import find_learner
from outdraft.models.networks.base import Decoder, initialise
from outdraft.models.networks.config import llama_config
from outdraft.weights.safetensors import read_tensors

PEERS = Path(__file__).parents[1] / "peers/blocks"
VARIANTS = sorted(one.name for one in PEERS.iterdir())


def target_of(said):
    """A target with their embeddings and head; its states are given."""
    vocab, width = said["embedding"].shape
    target = Decoder(
        llama_config(
            vocab_size=vocab,
            hidden_size=width,
            num_layers=6,
            num_heads=2,
            intermediate_size=8,
            max_len=64,
            tie_embeddings=False,
        )
    )
    initialise(target, 0)
    with torch.no_grad():
        target.embedding.copy_(said["embedding"])
        if len(said["head"]) == vocab:
            target.lm_head.weight.copy_(said["head"])
    return target


def farthest(learner, said):
    """How far the logits of all slots are from what was said of them; inf where other tokens have none."""
    ids, documents, length = said["ids"], said["documents"], len(said["ids"]) - 1
    counts = torch.zeros(length, dtype=torch.bool)
    counts[said["anchors"]] = True
    lesson = Lesson(
        ids=ids[None],
        documents=documents[None],
        positions=torch.arange(length),
        counts=counts,
        states=torch.zeros(length, 16),
        taps=dict(zip(learner.taps, said["states"][:length].chunk(len(learner.taps), -1), strict=True)),
    )
    with torch.no_grad():
        outlook = learner.look(lesson)
    first, far = learner.net.config.first_slot, 0.0
    anchors = said["anchors"].tolist()
    for step, guess in enumerate(outlook.guesses):
        ours = dict(zip((guess.rows - step).tolist(), guess.head(guess.states), strict=True))
        assert ours, f"slot {step + first} of no block is inside its text"
        for anchor, scores in ours.items():
            theirs = said["scores"][anchors.index(anchor), step + first]
            kept = theirs > -torch.inf
            if not torch.equal(scores > -torch.inf, kept):
                return float("inf")
            far = max(far, float((scores - theirs)[kept].abs().max()))
    return far


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_slot_says_what_the_released_module_said(variant):
    said = read_tensors(PEERS / variant / "numbers.safetensors")
    method = find_learner(variant.partition("_")[0])
    assert farthest(method.load(method.options(), target_of(said), PEERS / variant), said) < 1e-4
