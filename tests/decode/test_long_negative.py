"""Negative prompts that are longer than a chunk: no text waits for the whole of one, and no text changes."""

from dataclasses import replace

import pytest
import torch
from decode.test_guidance import VOCAB, ask, by_hand, engine

from outdraft.core.draft import chain
from outdraft.core.drafter import Traits
from outdraft.core.packing import pack
from outdraft.core.policy import Budget
from outdraft.core.room import Unbounded
from outdraft.decode import reference
from outdraft.decode.guidance import GuidedTarget
from outdraft.decode.parts import Parts
from outdraft.drafters.none import NoDrafter
from outdraft.engine.loop import Engine
from outdraft.engine.runner import Runner
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.testing.subject import run
from outdraft.testing.tiny import tiny_model
from outdraft.verify.auto import Auto
from tests.helpers.fakes import AuditedTarget, ConstantPolicy, TableTarget


def test_a_long_negative_prompt_is_read_in_chunks_of_its_own():
    target = AuditedTarget(Runner(tiny_model("llama", vocab=61, dtype=torch.float64, seed=1, max_len=2048)))
    sizes, forward = [], target.forward

    def watched(packed, taps=()):
        sizes.append([packed.row_starts[i + 1] - packed.row_starts[i] for i in range(len(packed.seqs))])
        return forward(packed, taps)

    target.forward = watched
    negative = tuple(i % 61 for i in range(1200))
    running = engine(Runner(tiny_model("llama", vocab=61, seed=1)))
    running.parts = replace(running.parts, target=GuidedTarget(target))
    running.composition.terms = replace(running.composition.terms, max_len=2048)
    (outcome,) = run(running, [ask(negative=negative, max_tokens=2)])
    assert sizes == [[512], [3], [512], [175], [1, 1], [1, 1]]
    assert [event.num_certain for event in outcome.events] == [3, 512, 175, 0], "policies see a prompt that is read"


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("length", [(2, 80), (44, 80), (80, 44), (80, 2)])
def test_while_a_long_negative_prompt_is_read_others_go_on(length, apart):
    """At most a chunk of each prompt in a pass; who decodes writes in between, and every text is its own."""
    target = TableTarget(vocab_size=VOCAB, order=6, sharpness=1.2, seed=4)
    target.max_len = 400
    wrapped = GuidedTarget(AuditedTarget(target), apart=apart)
    seen = Seers()
    parts = Parts(
        target=wrapped,
        drafter=seen,
        verifier=Auto(),
        policy=ConstantPolicy(Budget(depth=0)),
        room=Unbounded(mixes=not apart),
    )
    running = Engine(parts, scheduling=SchedulerSettings(max_num_batched_tokens=32))
    prompt, negative = (
        tuple(i % VOCAB for i in range(start, start + n)) for start, n in zip((1, 3), length, strict=True)
    )
    free = running.add(ask(negative=None, scale=1.0, max_tokens=60))
    running.step()
    guided = running.add(ask(prompt=prompt, negative=negative, max_tokens=4))
    guided.turn = replace(guided.turn, max_chunk=32)
    between, passes = 0, 0
    while not guided.num_output:
        before = free.num_output, guided.num_cached, guided.beside and guided.beside.num_cached
        running.step()
        if before[2] is not None and guided.beside is not None:
            assert guided.num_cached - before[1] <= 33 and guided.beside.num_cached - before[2] <= 33
        between += free.num_output > before[0]
        passes += 1
    assert passes >= 3 and between >= 2
    assert all(one.num_committed for one in seen.seen), "drafters hear of rows alone"
    assert sum(one.num_committed for one in seen.seen if one.seq is guided) == len(prompt)
    while running.has_work:
        running.step()
    wanted = [
        reference.decode(by_hand(target.next_logits, seq.request), running.prepare(seq.request))
        for seq in (free, guided)
    ]
    assert [free.output, guided.output] == wanted


class Seers(NoDrafter):
    """It guesses nothing, and keeps what it hears."""

    traits = Traits()

    def __init__(self):
        self.seen = []

    def observe(self, seen):
        self.seen += seen


def test_a_text_that_waits_for_its_shadow_may_give_back_its_memory():
    target = TableTarget(vocab_size=VOCAB, order=6, sharpness=1.2, seed=4)
    target.max_len = 400
    running = engine(target)
    asked = ask(negative=(2, 3) * 30, max_tokens=6)
    seq = running.add(asked)
    seq.turn = replace(seq.turn, max_chunk=20)
    running.step()
    assert not seq.num_unread and not seq.prefilled and seq.beside.num_cached == 20
    running._give_back(seq)
    assert seq.beside is None and not target.cached
    while running.has_work:
        running.step()
    assert seq.output == reference.decode(by_hand(target.next_logits, asked), running.prepare(asked))


class LastDrifts(TableTarget):
    """Of every pass the last sequence."""

    def forward(self, packed, taps=()):
        return replace(super().forward(packed, taps), drifted=frozenset([len(packed.seqs) - 1]))


def test_who_drifted_is_named_beside_one_that_has_no_row():
    """A text that waits for its shadow stands first in the pass, and the one behind it has drifted."""
    target = GuidedTarget(LastDrifts(vocab_size=VOCAB))
    running = engine(TableTarget(vocab_size=VOCAB))
    running.composition.terms = replace(running.composition.terms, max_len=4000)
    waits, free = running.prepare(ask(negative=(2,) * 1400)), running.prepare(ask(negative=None, scale=1.0))
    for seq in (waits, free):
        target.begin(seq)
    for seq in (waits, free):
        chunk = pack([seq], [None], max_chunk=len(seq.tokens) - 1)
        target.forward(chunk)
        target.commit(seq, range(len(seq.tokens) - 1))
        seq.num_cached = len(seq.tokens) - 1
    packed = pack([waits, free], [chain([waits.pending]), chain([free.pending, 1])])
    assert packed.row_starts == (0, 0, 2) and packed.num_beside[0] == 512
    assert target.forward(packed).drifted == {1}
