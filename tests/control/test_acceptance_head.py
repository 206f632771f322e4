"""SpecDec++'s head: it judges the states that are served, learns what is planted, changes no text, and fits one draft.

The planted draft is the target, but takes some tokens for others: such a guess is nearly always wrong, and
the others are always right.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from contracts.sides import twin
from control.world import sequence

from outdraft.control.acceptance_head.examples import examples_of
from outdraft.control.acceptance_head.learn import LEARN, AcceptanceLearning, auc
from outdraft.control.acceptance_head.net import AcceptanceConfig, AcceptanceNet, load_acceptance, save_acceptance
from outdraft.control.acceptance_head.policy import FOLDER, AcceptanceHeadOptions, build, judged_by
from outdraft.core.learner import Moment
from outdraft.core.learner_registry import find_learner, learner_names
from outdraft.core.policy import Arm, Budget
from outdraft.core.registry import find, make_options
from outdraft.core.request import Request
from outdraft.engine.assembly.assemble import arms_of
from outdraft.learn.losses import OWN
from outdraft.models.files.load import load_model, save_model
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import CapabilityError, ConfigError, ModelLoadError
from outdraft.options.params import SamplingParams
from outdraft.testing.reference_rule import ConstantPolicy
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run
from outdraft.testing.tiny import tiny_model
from outdraft.training.draft import DraftObjective
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows
from outdraft.verify.auto import Auto
from outdraft.verify.rejection import METHOD as REJECTION
from outdraft.weights.digest import digest_weights

VOCAB = 31
HANDING = [name for name in learner_names() if find_learner(name).hands_states]
PROMPT = (5, 6, 7, 8, 9)


def plain_copy(target):
    """A decoder of the same weights that training may lay its hands on."""
    own = Decoder(target.config, torch.float32)
    with torch.no_grad():
        for ours, theirs in zip(own.parameters(), target.parameters(), strict=True):
            ours.copy_(theirs)
    return own


def sharp(vocab_size, dtype):
    """A target that knows what it wants, at temperature 1 too."""
    made = tiny_model(vocab=vocab_size, dtype=dtype, seed=1, exact=False)
    made.lm_head.weight.mul_(1.6)
    made.set_exact(True)
    return made


def planted(target, directory):
    made = twin(target, directory)
    draft = load_model(Path(made["model"]), target.dtype)
    with torch.no_grad():
        for ours, theirs in zip(draft.parameters(), target.parameters(), strict=True):
            ours.copy_(theirs)
        draft.lm_head.weight[[1, 2, 9, 10, 17, 18]] = target.lm_head.weight[[2, 1, 10, 9, 18, 17]]
    save_model(draft, Path(made["model"]))
    return made


def texts(target, count, temperature=1.0, length=24, seed=0):
    """What the target writes: [count, length]."""
    ids = torch.randint(VOCAB, (count, length), generator=(generator := torch.Generator().manual_seed(seed)))
    teacher = Teacher(target, ())
    for place in range(2, length):
        states = teacher.lesson(rows_of(ids)).states.view(count, length - 1, -1)[:, place - 1]
        logits = teacher.logits(states).float()
        ids[:, place] = (
            torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[:, 0]
            if temperature
            else logits.argmax(-1)
        )
    return ids


def rows_of(ids, moment=None):
    counts = torch.ones_like(ids[:, 1:], dtype=torch.bool)
    return PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=counts, moment=moment)


def trained(target, place, temperature, steps=400):
    """A head beside the draft in `place`."""
    own = plain_copy(target)
    options = AcceptanceLearning(draft=str(place), kind="draft_model", temperature=temperature, rejection_weight=1.0)
    learner = LEARN.new(options, own, 0)
    teacher, ids = Teacher(own, learner.taps), texts(own, 64, temperature)
    objective = DraftObjective(learner, teacher, OWN.rows)
    optimizer = torch.optim.Adam([p for p in learner.module.parameters() if p.requires_grad], lr=5e-3)
    for step in range(steps):
        optimizer.zero_grad()
        moment = Moment(step=step, steps=steps, seed=step)
        objective.loss(rows_of(ids[(step * 8) % 64 :][:8], moment))[0].backward()
        optimizer.step()
    learner.save(place / FOLDER)
    return learner, teacher


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A subject with the planted draft, and heads for sampled and greedy texts, the former where it is looked for."""
    subject = Subject(
        DrafterRow(drafter="draft_model", side=planted, target=sharp, options={"sample": "match"}),
        tmp_path_factory.mktemp("planted"),
        vocab_size=VOCAB,
    )
    place = Path(subject.options.model)
    trained(subject.decoder, place, 0.0)
    shutil.move(place / FOLDER, place / "greedy")
    return subject, place, *trained(subject.decoder, place, 1.0)


def policy_of(subject, **options):
    engine = subject.engine()
    return build(AcceptanceHeadOptions(**options), arms_of(subject.method, engine.parts.drafter))


def counted(subject, policy, temperature, number=60):
    """(drafted, accepted, rounds) over some texts."""
    params = [SamplingParams(max_tokens=32, temperature=temperature, seed=i, ignore_eos=True) for i in range(number)]
    engine = subject.engine(policy=policy, verifier=REJECTION.build(REJECTION.options()))
    outcomes = run(engine, [Request(prompt_token_ids=(i % VOCAB, 3, 4), params=one) for i, one in enumerate(params)])
    events = [event for outcome in outcomes for event in outcome.events if event.tokens and not event.num_certain]
    return (sum(e.num_draft_tokens for e in events), sum(e.num_accepted for e in events), len(events))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_head_that_learned_drafts_less_for_what_is_accepted(scene, temperature):
    """Against every fixed depth: tokens at the price of a pass, and a tenth of it for each drafted token."""
    subject, place = scene[:2]
    model = str(place / "greedy") if temperature == 0 else None
    drafted, accepted, rounds = counted(subject, policy_of(subject, least=1, model=model), temperature)
    worth, fixed = {}, {}
    for depth in range(1, 9):
        fixed[depth] = counted(subject, ConstantPolicy(Budget(depth=depth)), temperature)
        worth[depth] = (fixed[depth][1] + fixed[depth][2]) / (fixed[depth][2] + 0.1 * fixed[depth][0])
    best = max(worth, key=worth.get)
    assert (accepted + rounds) / (rounds + 0.1 * drafted) > 1.03 * worth[best], (drafted, accepted, rounds, fixed)
    as_good = [k for k in fixed if fixed[k][1] / fixed[k][2] >= accepted / rounds]  # as many accepted in a round
    assert as_good and all(drafted / accepted < 0.9 * fixed[k][0] / fixed[k][1] for k in as_good)


def test_it_tells_what_is_accepted_better_than_the_drafts_own_probability(scene):
    _, _, learner, teacher = scene
    ids = texts(plain_copy(teacher.target), 32, seed=9)
    told = learner.assess([teacher.lesson(rows_of(ids))])
    assert told.numbers["auc"] > 0.8, told.line
    assert told.numbers["auc"] > told.numbers["auc_of_probabilities"] + 0.05, told.line
    assert told.score == -told.numbers["held_out_loss"]


def test_the_area_by_hand():
    scores = torch.tensor([0.1, 0.4, 0.4, 0.8])
    assert auc(scores, torch.tensor([0.0, 0.0, 1.0, 1.0])) == pytest.approx((1 + 0.5 + 2) / 4)
    assert auc(scores, torch.tensor([1.0, 1.0, 0.0, 0.0])) == pytest.approx(0.5 / 4)
    assert auc(scores, torch.ones(4)) == 0.5 and auc(scores[:0], scores[:0]) == 0.5
    soft = auc(torch.tensor([0.2, 0.6]), torch.tensor([0.25, 0.75]))  # pairs of shares: kept a, lost b
    assert soft == pytest.approx((0.75 * 0.75 + 0.5 * (0.25 * 0.75 + 0.75 * 0.25)) / 1.0)


def test_labels_and_states_of_a_draft_that_is_known(scene):
    """mixing=0, one text: p and q by hand of the very tokens that the states have read."""
    _, place, _, teacher = scene
    method = find_learner("draft_model")
    draft = method.load(method.options(), teacher.target, place)
    lesson = teacher.lesson(rows_of(texts(teacher.target, 2, length=9)))
    found = examples_of(draft, lesson, teacher.logits, mixing=0.0, temperature=1.0)
    with torch.no_grad():
        q = draft.look(lesson).guesses[0]
        q = draft.module.logits(q.states).softmax(-1)
        p = teacher.logits(lesson.states).softmax(-1)
    assert len(found.labels) == 2 * 7  # the first row's token is no guess, the last guess has no state
    rows = torch.tensor([b * 8 + t for b in range(2) for t in range(7)])
    assert found.rows.tolist() == rows.tolist()  # those whose next token is judged, which count in the loss
    tokens = (q[rows] - found.told[:, None]).abs().argmin(-1)  # the token whose probability was given
    torch.testing.assert_close(found.told, q[rows, tokens])
    torch.testing.assert_close(found.labels, (p[rows, tokens] / q[rows, tokens]).clamp_max(1))
    ids = lesson.ids.clone()
    ids[:, 1:8] = tokens.view(2, 7)
    with torch.no_grad():
        states = draft.look(replace(lesson, ids=ids)).guesses[0].states.view(2, 8, -1)[:, 1:].flatten(0, 1)
    torch.testing.assert_close(found.states, states)


def test_mixing_puts_so_many_tokens_back_and_learns_nothing_of_them(scene):
    _, place, _, teacher = scene
    draft = find_learner("draft_model").load(find_learner("draft_model").options(), teacher.target, place)
    lesson = teacher.lesson(rows_of(texts(teacher.target, 60, length=20)))
    whole, some, again = (
        len(examples_of(draft, lesson, teacher.logits, mixing=share, temperature=1.0).labels)
        for share in (0.0, 0.4, 0.4)
    )
    assert whole == 60 * 18 and some == again
    assert abs(some / whole - 0.6) < 0.06
    counts = lesson.counts.clone().view(60, 19)
    counts[:30] = False  # texts of which nothing is to be guessed
    half = examples_of(draft, replace(lesson, counts=counts.flatten()), teacher.logits, mixing=0.0, temperature=1.0)
    assert len(half.labels) == whole // 2


def test_draws_depend_on_step_and_row_and_on_nothing_else(scene):
    _, place, _, teacher = scene
    draft = find_learner("draft_model").load(find_learner("draft_model").options(), teacher.target, place)
    ids = texts(teacher.target, 4, length=12)

    def labels(ids, **at):
        lesson = teacher.lesson(rows_of(ids, Moment(steps=9, **at)))
        return examples_of(draft, lesson, teacher.logits, mixing=0.2, temperature=1.0).labels

    whole = labels(ids, step=1, seed=5)
    parts = torch.cat([labels(ids[:2], step=1, seed=5), labels(ids[2:], step=1, seed=5, first=2)])
    torch.testing.assert_close(whole, parts)
    assert len(other := labels(ids, step=2, seed=6)) != len(whole) or not torch.allclose(other, whole)


def test_greedy_and_seeded_texts_stay_and_chains_differ_in_length(scene):
    subject = scene[0]
    for params in ({}, {"temperature": 1.0, "seed": 3}):
        requests = [
            Request(prompt_token_ids=(*PROMPT, i), params=SamplingParams(max_tokens=30, **params)) for i in range(4)
        ]
        engine = subject.engine(policy=policy_of(subject, least=1), verifier=Auto())
        outcomes = run(engine, requests)
        assert [one.seq.output for one in outcomes] == [subject.oracle(request) for request in requests]
        depths = {event.draft_depth for one in outcomes for event in one.events if event.draft_depth}
        assert len(depths) > 2


def test_a_head_belongs_to_one_draft(scene, tmp_path):
    subject, place = scene[:2]
    assert load_acceptance(place / FOLDER).config.draft == digest_weights(place)
    policy_of(subject)
    other = tmp_path / "draft"
    shutil.copytree(place, other)
    draft = load_model(other, torch.float64)
    draft.lm_head.weight[0, 0] += 1
    save_model(draft, other)
    changed = Subject(
        DrafterRow(drafter="draft_model", side=lambda target, directory: {"model": str(other)}),
        tmp_path,
        vocab_size=VOCAB,
    )
    with pytest.raises(ConfigError, match="other weights"):
        policy_of(changed)
    with pytest.raises(ConfigError, match="another draft"):
        LEARN.load(
            AcceptanceLearning(draft=str(other), kind="draft_model"), plain_copy(subject.decoder), place / FOLDER
        )
    shutil.rmtree(other / FOLDER)
    with pytest.raises(ConfigError, match="outdraft train acceptance_head"):
        policy_of(changed)
    with pytest.raises(ConfigError, match="draft=DIR"):
        LEARN.new(AcceptanceLearning(), plain_copy(subject.decoder), 0)


def test_what_is_saved_says_the_same(scene, tmp_path):
    _, _, learner, _ = scene
    states, told = torch.randn(9, 32, generator=torch.Generator().manual_seed(1)), torch.linspace(0.1, 0.9, 9)
    learner.save(tmp_path)
    again = load_acceptance(tmp_path)
    assert torch.equal(again.chances(states, told), learner.module.chances(states, told))
    assert again.config == learner.module.config and not again.config.reads_probability
    assert torch.equal(again.chances(states, told), again.chances(states, told / 2))  # it does not read them
    assert again.chances(states * 7, told).allclose(again.chances(states, told), atol=1e-5)  # whatever the states' size
    assert again.chances(states, told).std() > 0.05
    for value, why in (("nan", "hold NaN"), ("-inf", "infinite weights")):
        with torch.no_grad():
            again.out.bias.fill_(float(value))
        save_acceptance(again, tmp_path)
        with pytest.raises(ModelLoadError, match=why):
            load_acceptance(tmp_path)


def test_a_rejection_weighs_what_was_asked(scene):
    """The gradient of an untrained head: (1 - a) for what is accepted, w a for what is rejected, a = 1/2."""
    _, place, _, teacher = scene
    made = {}
    for weight in (1.0, 6.0):
        options = AcceptanceLearning(draft=str(place), kind="draft_model", rejection_weight=weight)
        learner = LEARN.new(options, teacher.target, 0)
        lesson = teacher.lesson(rows_of(texts(teacher.target, 8)))
        (own,) = learner.look(lesson).beside
        own.values.mean().backward()
        made[weight] = float(learner.module.out.bias.grad)
        labels = examples_of(learner._draft, lesson, teacher.logits, mixing=0.15, temperature=1.0).labels
    mean = float(labels.mean())
    for weight, gradient in made.items():
        assert gradient == pytest.approx(0.5 * (weight * (1 - mean) - mean), abs=1e-4)


@pytest.mark.parametrize("reads", [True, False])
def test_a_head_that_reads_probabilities_learns_what_they_say(reads, tmp_path):
    """States of noise, and tokens that are accepted as often as the draft says."""
    config = AcceptanceConfig(width=6, num_blocks=1, draft="", temperature=1.0, reads_probability=reads)
    net, draw = AcceptanceNet(config), torch.Generator().manual_seed(3)
    states, told = torch.randn(4000, 6, generator=draw), torch.rand(4000, generator=draw)
    labels = (torch.rand(4000, generator=draw) < told).float()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-2)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(net(states[:3000], told[:3000]), labels[:3000]).backward()
        optimizer.step()
    save_acceptance(net, tmp_path)
    found = load_acceptance(tmp_path).chances(states[3000:], told[3000:])
    area = auc(found, labels[3000:])
    assert (area > 0.8) == reads and (abs(area - auc(told[3000:], labels[3000:])) < 0.02) == reads
    if reads:
        assert float((found - told[3000:]).abs().mean()) < 0.05
        sure = load_acceptance(tmp_path).chances(states[:2], torch.tensor([0.0, 1.0]))
        assert sure[0] < 0.05 and sure[1] > 0.95


def test_an_option_out_of_range_is_named():
    for name, value in (("threshold", 1.5), ("least", 0)):
        with pytest.raises(ConfigError, match=name):
            make_options(find("policy", "acceptance_head"), {name: value})


def test_nothing_to_learn_from_breaks_nothing(scene):
    _, place, _, teacher = scene
    learner = LEARN.new(AcceptanceLearning(draft=str(place), kind="draft_model"), teacher.target, 0)
    ids = texts(teacher.target, 2, length=4)
    rows = replace(rows_of(ids), counts=torch.zeros(2, 3, dtype=torch.bool))
    loss = DraftObjective(learner, teacher, OWN.rows).loss(rows)[0]
    loss.backward()
    assert float(loss.detach()) == 0 and learner.assess([teacher.lesson(rows)]).numbers["auc"] == 0.5


def test_a_policy_may_stand_on_a_head_by_hand():
    net = AcceptanceNet(AcceptanceConfig(width=4, num_blocks=1, draft="", temperature=1.0))
    (budget,) = judged_by(AcceptanceHeadOptions(threshold=0.6, num_speculative_tokens=7), net).plan([sequence()])
    assert budget.depth == 7 and budget.survival == pytest.approx(0.4) and budget.judge.least == 2
    assert budget.judge.chances(torch.ones(3, 4), torch.ones(3)).tolist() == [0.5] * 3
    with pytest.raises(CapabilityError):
        build(AcceptanceHeadOptions(), [Arm(name="a")])
