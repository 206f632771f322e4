"""CTC drafting: the collapse, sums over alignments, the tree of strings, and what the network is trained to spell."""

import itertools
from dataclasses import replace
from math import exp, log

import pytest
import torch
from contracts.sides import randomise
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.core.learner import Moment
from outdraft.drafters.ctc.collapse import chain_of, collapse, likeliest, trie_of
from outdraft.drafters.ctc.learn import LEARN, CtcLearning, next_tokens
from outdraft.drafters.shared.heads.learn import last_states, stem_outputs
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows
from tests.drafters.drafting import draft_behind
from tests.training.toys import draft_loop, draft_objective, lesson_rows, toy_decoder

BLANK = 3
slots_of_letters = st.lists(st.integers(0, BLANK), max_size=7)


def test_repeats_go_before_blanks():
    a, b, _ = 0, 1, BLANK
    assert collapse([a, a, _, a, b, b], BLANK) == (a, a, b)
    assert collapse([a, a, a, a], BLANK) == (a,) and collapse([_, _], BLANK) == ()


@given(slots_of_letters)
def test_what_has_no_repeats_and_no_blanks_is_left_alone(slots):
    plain = [token for i, token in enumerate(slots) if token != BLANK and (i == 0 or slots[i - 1] != token)]
    plain = [token for i, token in enumerate(plain) if i == 0 or plain[i - 1] != token]
    assert collapse(plain, BLANK) == tuple(plain)


@given(slots_of_letters, st.data())
def test_more_of_the_same_and_more_blanks_between_others_change_nothing(slots, data):
    wanted = collapse(slots, BLANK)
    assert BLANK not in wanted and len(wanted) <= len(slots)
    if slots:
        at = data.draw(st.integers(0, len(slots) - 1))
        assert collapse([*slots[: at + 1], slots[at], *slots[at + 1 :]], BLANK) == wanted
        if at == 0 or slots[at] != slots[at - 1]:
            assert collapse([*slots[:at], BLANK, *slots[at:]], BLANK) == wanted


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(0, 10_000))
def test_a_strings_probability_is_the_sum_over_its_alignments(count, seed):
    log_probs = torch.randn(count, BLANK + 1, generator=torch.Generator().manual_seed(seed)).log_softmax(-1).tolist()
    sums = {}
    for slots in itertools.product(range(BLANK + 1), repeat=count):
        string = collapse(slots, BLANK)
        sums[string] = sums.get(string, 0.0) + exp(sum(log_probs[i][token] for i, token in enumerate(slots)))
    found = likeliest([dict(enumerate(slot)) for slot in log_probs], BLANK, beams=10_000)
    assert {string: exp(amount) for string, amount in found} == pytest.approx(sums)
    assert [amount for _, amount in found] == sorted((amount for _, amount in found), reverse=True)


def test_the_sums_are_those_of_the_loss():
    """`torch.nn.functional.ctc_loss` of every string."""
    log_probs = torch.randn(4, BLANK + 1, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    for string, amount in likeliest([dict(enumerate(slot)) for slot in log_probs.tolist()], BLANK, beams=10_000):
        tokens, counts = torch.tensor([string], dtype=torch.long), torch.tensor([len(string)])
        loss = torch.nn.functional.ctc_loss(
            log_probs[:, None], tokens, torch.tensor([4]), counts, blank=BLANK, reduction="none"
        )
        assert float(loss[0]) == pytest.approx(-amount, abs=1e-5)


strings = st.dictionaries(
    st.lists(st.integers(0, 3), max_size=5).map(tuple), st.floats(0.01, 1.0), min_size=1, max_size=12
)


@given(strings, st.integers(1, 6), st.integers(1, 20))
def test_the_tree_of_strings(weighed, depth, nodes):
    made = trie_of([(string, log(weight)) for string, weight in weighed.items()], depth=depth, nodes=nodes)
    paths = [()]
    for parent, token in zip(made.parents[1:], made.tokens[1:], strict=True):
        paths.append((*paths[parent], token))  # parents come first
    prefixes = {string[:end] for string in weighed for end in range(1, min(depth, len(string)) + 1)}
    assert len(set(paths)) == len(paths) and set(paths[1:]) <= prefixes
    assert len(paths) - 1 == min(nodes, len(prefixes))
    masses = {path: sum(w for s, w in weighed.items() if s[: len(path)] == path) for path in prefixes}
    assert made.masses[1:] == pytest.approx([masses[path] for path in paths[1:]])
    left = [masses[path] for path in prefixes - set(paths)]
    assert all(mass >= max(left, default=0) - 1e-9 for mass in made.masses[1:]), "the heaviest nodes are kept"
    siblings = {}
    for parent, mass in zip(made.parents[1:], made.masses[1:], strict=True):
        siblings.setdefault(parent, []).append(mass)
    assert all(masses == sorted(masses, reverse=True) for masses in siblings.values())


def test_depth_is_the_number_of_tokens_that_are_no_blanks():
    slots = [{0: log(0.9), BLANK: log(0.1)}, {BLANK: log(0.8), 0: log(0.2)}, {0: log(0.9), 1: log(0.1)}]
    made = trie_of(likeliest(slots, BLANK, 100)[:1], depth=9, nodes=9)
    assert (made.tokens, made.parents) == ([-1, 0, 0], [-1, 0, 1]), "a, blank, a spells two tokens in three slots"


def test_a_branch_ends_below_what_is_unlikely():
    weighed = [((0, 1), log(0.6)), ((2, 1), log(0.4))]
    paths = {0.0: 4, 0.5: 3, 0.7: 2}
    assert {token: len(trie_of(weighed, depth=9, nodes=9, token=token).tokens) - 1 for token in paths} == paths
    assert len(trie_of(weighed, depth=9, nodes=9, path=0.5).tokens) - 1 == 3


def test_a_token_of_a_chain_is_as_sure_as_the_slots_that_lead_to_it():
    """a a _ b b a: a by its first slot, b by the three behind that, the last a by two."""
    slots = [(0, log(0.9)), (0, log(0.8)), (BLANK, log(0.7)), (1, log(0.6)), (1, log(0.5)), (0, log(0.4))]
    made = chain_of(slots, BLANK, depth=9, nodes=9)
    assert (made.tokens, made.parents) == ([-1, 0, 1, 0], [-1, 0, 1, 2])
    shares = [made.masses[i] / made.masses[i - 1] for i in range(1, 4)]
    assert shares == pytest.approx([0.9, 0.8 * 0.7 * 0.6, 0.5 * 0.4])
    lengths = {
        (2, 9, 0, 0): 2,
        (9, 1, 0, 0): 1,
        (9, 9, 0.5, 0): 2,
        (9, 9, 0.95, 0): 1,
        (9, 9, 0, 0.3): 3,
        (9, 9, 0, 0.31): 2,
    }
    for (depth, nodes, token, path), length in lengths.items():
        assert len(chain_of(slots, BLANK, depth=depth, nodes=nodes, token=token, path=path).tokens) == 1 + length
    assert chain_of([(BLANK, 0.0)] * 3, BLANK, depth=9, nodes=9).tokens == [-1]


def test_a_chain_says_how_sure_it_is(tmp_path):
    target = tiny_model(vocab=5, layers=3, dtype=torch.float64)
    learner = LEARN.new(CtcLearning(), target, 0)
    randomise(learner.module.to(torch.float64), 1)
    learner.save(tmp_path)
    sure, never = (
        draft_behind(target, [3, 1, 4, 1], "ctc", tmp_path, depth=9, confidence_threshold=threshold)
        for threshold in (1e-9, 1.0)
    )
    assert sure.num_nodes > 2 and all(0 < one < 1 for one in sure.confidence.tolist()[1:])
    assert never.tokens.tolist() == sure.tokens.tolist()[:2]


def test_a_row_is_to_spell_what_stands_behind_its_next_token():
    ids = torch.arange(20).view(2, 10)
    documents = torch.tensor([[0] * 10, [0] * 4 + [1] * 6])
    text = PackedRows(ids=ids, documents=documents, counts=documents[:, 1:] == documents[:, :-1])
    lesson = Teacher(tiny_model(vocab=31), ()).lesson(text)
    tokens, counts = next_tokens(lesson, torch.tensor([0, 6, 7, 9, 10, 13]), 3)
    said = [row[:count].tolist() for row, count in zip(tokens, counts.tolist(), strict=True)]
    assert said == [[2, 3, 4], [8, 9], [9], [12, 13], [13], [16, 17, 18]]


def test_the_loss_is_of_each_row_the_nats_a_token():
    """Rows with three tokens to spell weigh as much as the last one, which has one."""
    target = toy_decoder(1)
    learner = LEARN.new(CtcLearning(), target, 0)
    randomise(learner.module, 3)
    lesson = Teacher(target, learner.taps).lesson(lesson_rows(torch.arange(12).view(2, 6)))
    net, rows = learner.module, torch.tensor([0, 1, 2, 3, 5, 6, 7, 8])
    slots = net.slots(stem_outputs(net.stem, last_states(target, lesson, net.config), lesson, target))[rows]
    log_probs = net.logits(slots).log_softmax(-1)
    nats = []
    for row, own in zip(rows.tolist(), log_probs, strict=True):
        text = lesson.ids[row // 5, row % 5 + 2 : row % 5 + 5]
        lengths = torch.tensor(len(own)), torch.tensor(len(text))
        nats.append(torch.nn.functional.ctc_loss(own, text, *lengths, blank=net.blank, reduction="none") / len(text))
    (own,) = learner.look(lesson).beside
    torch.testing.assert_close(own.values, torch.stack(nats))
    assert own.rows.tolist() == (rows + 1).tolist() and bool(lesson.counts[own.rows].all())


def test_in_a_part_of_the_vocabulary_slots_spell_what_stands_before_the_first_token_outside_it():
    """Nothing at all where the first one is outside; the guesses are the target's ids."""
    target = toy_decoder(1)
    learner = LEARN.new(CtcLearning(draft_vocab_size=3), target, 0)
    learner.choose_vocab(torch.tensor([0, 9, 0, 9, 9, 0, 0, 0]))
    net = learner.module
    assert net.vocab.tolist() == [1, 3, 4] and net.blank == 3
    randomise(net, 3)
    lesson = Teacher(target, learner.taps).lesson(lesson_rows(torch.tensor([[0, 5, 3, 4, 2, 1, 1, 4]])))
    slots = net.slots(stem_outputs(net.stem, last_states(target, lesson, net.config), lesson, target))
    wanted, nats = [[1, 2], [2], [], [0, 0, 2], [0, 2], [2]], []
    for own, text in zip(net.logits(slots[: len(wanted)]).log_softmax(-1), wanted, strict=True):
        spelt, lengths = torch.tensor(text, dtype=torch.long), (torch.tensor(len(own)), torch.tensor(len(text)))
        nats.append(torch.nn.functional.ctc_loss(own, spelt, *lengths, blank=3, reduction="none") / max(1, len(text)))
    outlook = learner.look(lesson)
    torch.testing.assert_close(outlook.beside[0].values, torch.stack(nats))
    outlook.beside[0].values.sum().backward()
    assert all(one.grad is not None and one.grad.isfinite().all() for one in net.parameters())
    said = {token for guess in outlook.guesses for token in guess.head(guess.states).argmax(-1).tolist()}
    assert said and said <= {1, 3, 4}


def test_beside_the_spelling_the_layer_learns_the_targets_next_state_and_distribution():
    """Its output at row r is compared with row r + 1, whose token is the first that the slots are to spell."""
    target = toy_decoder(1)
    lesson, sums = Teacher(target, (1,)).lesson(lesson_rows(torch.arange(12).view(2, 6))), []
    for options in ({}, {"feature_weight": 2.0}, {"soft_weight": 3.0}, {"feature_weight": 2.0, "soft_weight": 3.0}):
        learner = LEARN.new(CtcLearning(**options), target, 0)
        randomise(learner.module, 3)
        sums.append(learner.look(lesson).beside[0].values)
    net, rows = learner.module, torch.tensor([0, 1, 2, 3, 5, 6, 7, 8])
    g = stem_outputs(net.stem, last_states(target, lesson, net.config), lesson, target)[rows]
    true = target.norm(lesson.states)[rows + 1]
    near = torch.nn.functional.smooth_l1_loss(g, true, reduction="none").mean(-1)
    soft = -(target.head(true).softmax(-1) * target.head(g).log_softmax(-1)).sum(-1)
    spelled, *others = sums
    for found, more in zip(others, (2 * near, 3 * soft, 2 * near + 3 * soft), strict=True):
        torch.testing.assert_close(found - spelled, more)


@pytest.mark.parametrize("beside", [{}, {"feature_weight": 5.0, "soft_weight": 2.0}])
def test_the_losss_gradient_is_that_of_differences(beside):
    """Of every parameter along a random direction, in double precision; two documents share a row."""
    target = tiny_model(vocab=7, layers=2, dtype=torch.float64)
    learner = LEARN.new(CtcLearning(**beside), target, 0)
    randomise(learner.module.to(torch.float64), 3)
    generator = torch.Generator().manual_seed(5)
    ids, documents = torch.randint(7, (2, 9), generator=generator), torch.tensor([[0] * 9, [0] * 4 + [1] * 5])
    text = PackedRows(ids=ids, documents=documents, counts=documents[:, 1:] == documents[:, :-1])
    lesson, step = Teacher(target, learner.taps).lesson(text), 1e-6

    def told():
        return learner.look(lesson).beside[0].values.sum()

    told().backward()
    for name, parameter in learner.module.named_parameters():
        along = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        sides = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter += sign * step * along
            sides.append(float(told().detach()))
            with torch.no_grad():
                parameter -= sign * step * along
        seen = float((parameter.grad * along).sum())
        assert seen == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-5, abs=1e-7), name
        assert abs(seen) > 1e-5, f"{name} does not matter to the loss"


def test_while_it_learns_no_chain_is_made(monkeypatch):
    """The loss is the same with and without; an exam has the chains, and without gradients no loss."""
    target = toy_decoder(1)
    learner = LEARN.new(CtcLearning(), target, 0)
    randomise(learner.module, 3)
    text = lesson_rows(torch.arange(24).view(2, 12))
    teacher = Teacher(target, learner.taps)
    exam = learner.look(teacher.lesson(text))
    with torch.no_grad():
        assert not learner.look(teacher.lesson(text)).beside and len(exam.guesses) == 6
    monkeypatch.setattr(type(learner), "_chains", None)
    learning = learner.look(teacher.lesson(replace(text, moment=Moment(step=0, steps=9, seed=1))))
    assert not learning.guesses
    torch.testing.assert_close(learning.beside[0].values, exam.beside[0].values)


def test_a_chain_is_the_best_alignment_collapsed_and_the_promise_is_about_it(tmp_path):
    target, prompt, lengths = tiny_model(vocab=5, layers=3, dtype=torch.float64), [3, 1, 4, 1, 0, 2, 2, 4], set()
    for seed in range(6):
        learner = LEARN.new(CtcLearning(), target, 0)
        randomise(learner.module.to(torch.float64), seed)
        learner.save(tmp_path / str(seed))
        outlook = learner.look(Teacher(target, learner.taps).lesson(lesson_rows(torch.tensor([[*prompt, *[0] * 9]]))))
        at, said = len(prompt) - 2, []
        for ahead, guess in enumerate(outlook.guesses, 1):
            own = (guess.rows == at + ahead).nonzero()[:, 0]
            said += guess.head(guess.states[own]).argmax(-1).tolist()
        drafted = draft_behind(target, prompt, "ctc", tmp_path / str(seed), depth=9).tokens.tolist()
        assert drafted == [4, *said]
        lengths.add(len(said))
    assert len(lengths) > 1, "guesses are of several lengths"


def test_training_makes_it_spell_the_text(tmp_path):
    """The toy language has a likeliest next token: more of the chain comes true, and several tokens are spelled."""
    target = toy_decoder(1)
    learner = LEARN.new(CtcLearning(), target, 0)
    objective = draft_objective(learner, target)
    ids = torch.arange(8).repeat(16, 4)[:, :17]  # a text that repeats itself
    before = objective.loss(lesson_rows(ids))[0].item()

    class Same:
        def rows(self, step, first, count, length):
            return lesson_rows(ids[:count])

    loop = draft_loop(objective, tmp_path, steps=60)
    loop.data = Same()
    loop.run()
    assert objective.loss(lesson_rows(ids))[0].item() < 0.2 * before
    outlook = learner.look(objective.teacher.lesson(lesson_rows(ids)))
    for guess in outlook.guesses[:3]:
        own = guess.rows % 16 >= 4
        right = guess.head(guess.states[own]).argmax(-1) == ids[:, 1:].flatten()[guess.rows[own]]
        assert own.sum() > 100 and right.float().mean() > 0.9


def test_a_network_of_too_few_slots_does_not_go_on(tmp_path):
    target = toy_decoder()
    LEARN.new(CtcLearning(num_slots=3, num_tokens=2), target, 0).save(tmp_path)
    assert LEARN.load(CtcLearning(num_tokens=2), target, tmp_path).module.config.num_heads == 3
    with pytest.raises(ConfigError, match=r"num_slots=3 cannot spell num_tokens=3 .* or num_tokens=2"):
        LEARN.load(CtcLearning(), target, tmp_path)


def test_options_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="at least 5 slots"):
        CtcLearning(num_slots=4)
