"""Guesses beside the target: chunks change nothing, trimmed vocabularies are renormalised, ratios are the rule's."""

import pytest
import torch

from outdraft.core.learner import OWN, Beside, Guess, Lesson, Outlook
from outdraft.learn.compare import accepted, compare
from outdraft.learn.losses import LOSSES, Weighted, forward_kl, logs, total_variation

VOCAB, WIDTH = 11, 6


@pytest.fixture
def scene():
    generator = torch.Generator().manual_seed(0)

    def noise(*shape):
        return torch.randn(*shape, generator=generator)

    ids = torch.randint(VOCAB, (2, 8), generator=generator)
    counts = torch.rand(14, generator=generator) > 0.3
    lesson = Lesson(
        ids=ids,
        documents=torch.zeros_like(ids),
        positions=torch.arange(7).repeat(2),
        counts=counts,
        states=noise(14, WIDTH),
    )
    theirs, ours = noise(VOCAB, WIDTH), noise(VOCAB, WIDTH)
    states = [noise(14, WIDTH).requires_grad_(), noise(10, WIDTH).requires_grad_()]
    rows = [torch.arange(14), torch.randperm(14, generator=generator)[:10]]
    return lesson, (lambda x: x @ theirs.T), (lambda x: x @ ours.T), states, rows


def outlook_of(head, states, rows, **more):
    weights = (1.0, 0.5)
    return Outlook(
        guesses=[
            Guess(states=s, head=head, rows=r, weight=w, **more) for s, r, w in zip(states, rows, weights, strict=True)
        ]
    )


@pytest.mark.parametrize("held", [0, None])
@pytest.mark.parametrize("chunk", [1, 3 * VOCAB, 1 << 20])
def test_the_loss_is_the_weighted_mean_whatever_the_chunk(scene, chunk, held):
    lesson, logits_of, head, states, rows = scene
    found = compare(outlook_of(head, states, rows), lesson, logits_of, forward_kl, chunk=chunk, held=held)
    loss, rates = found.loss, found.rates
    expected, weight, seen = 0.0, 0.0, []
    for s, r, w in zip(states, rows, (1.0, 0.5), strict=True):
        kept = lesson.counts[r]
        p, q = logs(logits_of(lesson.states[r][kept])), logs(head(s[kept]))
        expected, weight = expected + w * forward_kl(p, q, None).sum(), weight + w * int(kept.sum())
        seen.append(1 - total_variation(p, q, None).mean())
    expected = expected / weight
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.stack(rates), torch.stack(seen).detach())
    ours = torch.autograd.grad(loss, states, retain_graph=True)
    for mine, theirs in zip(ours, torch.autograd.grad(expected, states), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_logits_of_one_chunk_are_held_at_once(scene):
    lesson, logits_of, head, states, rows = scene
    asked = []

    def counted(x):
        asked.append(len(x))
        return head(x)

    loss = compare(outlook_of(counted, states, rows), lesson, logits_of, forward_kl, chunk=4 * VOCAB, held=0).loss
    made = len(asked)
    loss.backward()
    assert max(asked) <= 4 and len(asked) == 2 * made, "made again for the gradient, not kept"


def test_few_logits_are_kept_for_the_gradient_which_is_the_same(scene):
    lesson, logits_of, head, states, rows = scene
    counted = sum(int(lesson.counts[r].sum()) for r in rows)
    gradients = []
    for held, times in ((counted * VOCAB - 1, 2), (counted * VOCAB, 1)):
        asked = []

        def watched(x, asked=asked):
            asked.append(len(x))
            return head(x)

        loss = compare(outlook_of(watched, states, rows), lesson, logits_of, forward_kl, chunk=VOCAB, held=held).loss
        gradients.append(torch.autograd.grad(loss, states))
        assert len(asked) == times * counted
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


def test_tokens_that_the_draft_cannot_say_have_no_cross_entropy(scene):
    lesson, logits_of, head, states, rows = scene
    kept = torch.tensor([0, 2, 3, 7, 9, 10])
    one = Outlook(guesses=[Guess(states=states[0], head=lambda x: head(x)[:, kept], rows=rows[0], vocab=kept)])
    loss = compare(one, lesson, logits_of, LOSSES["cross_entropy"]).loss
    tokens, log_q = lesson.ids[:, 1:].flatten(), logs(head(states[0].detach())[:, kept])
    known = kept.tolist()
    counted = [i for i in range(14) if lesson.counts[i]]
    told = [-float(log_q[i, known.index(int(tokens[i]))]) for i in counted if int(tokens[i]) in known]
    assert float(loss.detach()) == pytest.approx(sum(told) / len(counted), abs=1e-5) and 0 < len(told) < len(counted)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_trimmed_vocabulary_compares_what_it_can_say(scene, name):
    lesson, logits_of, head, states, rows = scene
    kept = torch.tensor([0, 2, 3, 7, 9, 10])
    found = compare(outlook_of(lambda x: head(x)[:, kept], states, rows, vocab=kept), lesson, logits_of, LOSSES[name])
    loss, rates = found.loss, found.rates
    r = rows[0][lesson.counts]
    p = logits_of(lesson.states[r]).softmax(-1)
    q = torch.zeros_like(p).index_copy(1, kept, head(states[0].detach()[lesson.counts])[:, kept].softmax(-1))
    assert float(rates[0]) == pytest.approx(float(torch.minimum(p, q).sum(-1).mean()), abs=1e-5)
    assert torch.isfinite(loss)


@pytest.mark.parametrize("held", [0, 1 << 20])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("kept", [None, [0, 2, 3, 7, 9, 10]])
def test_a_mix_by_the_kernels_is_the_one_by_pytorch(scene, held, temperature, kept):
    lesson, logits_of, head, states, rows = scene
    mix = Weighted({"hybrid": 0.4, "cross_entropy": 0.1})
    vocab = None if kept is None else torch.tensor(kept)
    outlook = outlook_of(lambda x: head(x)[:, kept or list(range(VOCAB))], states, rows, vocab=vocab)
    found = []
    for loss in (mix, lambda *given: mix(*given)):  # the kernels know weights, and no function of ours
        one = compare(outlook, lesson, logits_of, loss, temperature=temperature, held=held, chunk=4 * VOCAB)
        found.append((one.loss, torch.stack(one.rates), *torch.autograd.grad(one.loss, states)))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


def test_a_temperature_softens_both_and_keeps_the_size(scene):
    lesson, logits_of, head, states, rows = scene
    one = outlook_of(head, states[:1] * 2, rows[:1] * 2)
    found = compare(one, lesson, logits_of, forward_kl, temperature=2.0)
    loss, rates = found.loss, found.rates
    kept = lesson.counts
    expected = 4 * forward_kl(logs(logits_of(lesson.states[kept]) / 2), logs(head(states[0][kept]) / 2), None).mean()
    torch.testing.assert_close(loss, expected)
    assert float(rates[0]) == pytest.approx(float(compare(one, lesson, logits_of, forward_kl).rates[0]))


@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
def test_ratios_are_what_rejection_sampling_accepts(scene, temperature, trimmed):
    lesson, logits_of, head, states, rows = scene
    vocab = torch.tensor([1, 2, 5, 6, 8]) if trimmed else None
    said = (lambda x: head(x)[:, vocab]) if trimmed else head
    found = accepted(outlook_of(said, states, rows, vocab=vocab), lesson, logits_of, temperature)[1]
    tokens = lesson.ids[:, 1:].flatten()
    assert int(found.guessed.sum()) == int(lesson.counts[rows[1]].sum())
    for state, row in zip(states[1].detach(), rows[1].tolist(), strict=True):
        heat = temperature or 1.0
        p = (logits_of(lesson.states[row]) / heat).softmax(-1)
        q = torch.zeros(VOCAB)
        q[vocab if trimmed else slice(None)] = (said(state[None])[0] / heat).softmax(-1)
        x = int(tokens[row])
        wanted = min(1.0, float(q[x] / p[x])) if temperature else float(q.argmax() == p.argmax())
        assert float(found.ratio[row]) == pytest.approx(wanted * bool(lesson.counts[row]), abs=1e-5)


def test_nothing_to_guess_is_no_loss(scene):
    lesson, logits_of, head, states, rows = scene
    from dataclasses import replace

    silent = replace(lesson, counts=torch.zeros_like(lesson.counts))
    found = compare(outlook_of(head, states, rows), silent, logits_of, forward_kl)
    loss, rates = found.loss, found.rates
    assert float(loss.detach()) == 0 and [float(rate) for rate in rates] == [0, 0]
    loss.backward()
    assert float(states[0].grad.abs().sum()) == 0, "a pass over a long prompt teaches nothing and breaks nothing"


def test_losses_beside_count_where_guesses_do(scene):
    lesson, logits_of, head, states, rows = scene
    values = torch.rand(14, generator=torch.Generator().manual_seed(5)).requires_grad_()
    one = Guess(states=states[0], head=head, rows=rows[0])
    outlook = Outlook(guesses=[one], beside=[Beside(name="far", values=values, rows=rows[0])])
    plain, both = (compare(outlook, lesson, logits_of, forward_kl, beside={"far": w}).loss for w in (0.0, 0.3))
    kept = lesson.counts
    torch.testing.assert_close(both - plain, 0.3 * values[kept].mean())
    (grad,) = torch.autograd.grad(both, values)
    assert not grad[~kept].any() and grad[kept].any()


def test_losses_of_one_name_are_one_mean_by_their_weights(scene):
    lesson, logits_of, head, states, rows = scene
    made = torch.Generator().manual_seed(5)
    far = [torch.rand(14, generator=made) for _ in range(2)]
    guesses = [Guess(states=states[0], head=head, rows=rows[0], weight=w) for w in (1.0, 0.25)]
    beside = [Beside(name="far", values=x, rows=rows[0], weight=w) for x, w in zip(far, (1.0, 0.25), strict=True)]
    beside.append(
        Beside(name="other", values=torch.full((3,), 1e6), rows=torch.arange(3))
    )  # the lesson does not ask for it
    plain, both = (
        compare(Outlook(guesses=guesses, beside=beside), lesson, logits_of, forward_kl, beside={"far": w}).loss
        for w in (0.0, 0.3)
    )
    first, second = (x[lesson.counts].mean() for x in far)
    torch.testing.assert_close(both - plain, 0.3 * (first + 0.25 * second) / 1.25)


def test_a_kinds_own_loss_is_a_mean_unless_asked(scene):
    """Over other rows than the guesses': its mean is added to theirs, not its sum."""
    lesson, logits_of, head, states, rows = scene
    chosen = lesson.counts.nonzero()[:3, 0]
    own = Beside(name=OWN, values=torch.tensor([0.1, 0.7, 1.3]), rows=chosen)
    one = outlook_of(head, states, rows)
    plain, more = (
        compare(outlook, lesson, logits_of, forward_kl).loss
        for outlook in (one, Outlook(guesses=one.guesses, beside=[own]))
    )
    torch.testing.assert_close(more, plain + 0.7)


def test_where_nothing_is_guessed_a_kind_learns_by_its_own_loss_alone(scene):
    """Two passes of unlike size weigh what they count, as one over both would."""
    lesson, logits_of, *_ = scene
    values = torch.tensor([1.0, 2.0, 6.0]).requires_grad_()
    chosen = lesson.counts.nonzero()[:3, 0]
    parts = [
        compare(
            Outlook(guesses=(), beside=[Beside(name=OWN, values=values[some], rows=chosen[some])]),
            lesson,
            logits_of,
            forward_kl,
        )
        for some in (slice(0, 1), slice(1, 3), slice(0, 0))
    ]
    assert [one.weight for one in parts] == [1.0, 2.0, 0.0]
    torch.testing.assert_close(sum(one.total for one in parts) / sum(one.weight for one in parts), values.mean())
    parts[2].total.backward()  # a pass of nothing has a gradient all the same: of zeros
    assert not values.grad.any()
