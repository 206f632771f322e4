"""LayerSkip's training: rates, weights and losses are the paper's, exits learn, and the original stays as it is."""

import copy
import math

import pytest
import torch
from finetune.texts import STEPS, VOCAB, alone, bend, rows, small

from outdraft.core.learner import TARGET, Moment
from outdraft.core.learner_registry import find_learner
from outdraft.core.skip import Skip
from outdraft.finetune.layerskip import LayerSkipLearning, dropout_rate, exit_weights
from outdraft.learn.losses import OWN
from outdraft.models.files.load import load_model, read_json
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.quant.config import QuantConfig
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.training.draft import DraftObjective
from outdraft.training.lessons import Teacher

LAYERS = 4


def learner_of(target, seed=3, **options):
    method = find_learner("layerskip")
    learner = method.new(method.options(**{"exit_layer": 2, **options}), target, seed)
    return learner, Teacher(target, learner.taps)


def at(step):
    return Moment(step=step, steps=STEPS, seed=step)


def test_later_layers_are_dropped_more_often():
    options = LayerSkipLearning(dropout=0.2)
    found = [dropout_rate(layer, 5, options, at(0)) for layer in range(5)]
    expected = [0.2 * (math.exp(layer * math.log(2) / 4) - 1) for layer in range(5)]
    assert found == pytest.approx(expected) and found[0] == 0 and found[-1] == pytest.approx(0.2)
    ramped = [dropout_rate(4, 5, LayerSkipLearning(dropout=0.2, dropout_ramps=True), at(s)) for s in (0, 5, 9)]
    assert ramped == pytest.approx([0, 0.2 * (2 ** (5 / 9) - 1), 0.2])


def test_exits_rotate_and_weigh_as_in_the_paper():
    options = LayerSkipLearning(exit_scale=0.2, rotation=2)
    e = [0.2 * sum(range(layer + 1)) for layer in range(5)] + [5 + 0.2 * sum(range(5))]  # of six layers
    for step in range(4):
        chosen = [layer for layer in range(5) if layer % 2 == step % 2] + [5]
        total = sum(e[layer] for layer in chosen)
        assert exit_weights(6, options, at(step)) == pytest.approx({one + 1: e[one] / total for one in chosen})
    gradual = LayerSkipLearning(curriculum="gradual")
    seen = [min(exit_weights(4, gradual, Moment(step=s, steps=80, seed=s))) for s in (0, 10, 20, 30, 79)]
    assert seen == [4, 3, 2, 1, 1]


def test_a_dropped_layer_is_left_out_of_its_row_alone():
    learner, teacher = learner_of(small(), dropout=1.0)
    bend(learner.module)
    lesson = teacher.lesson(rows(step=2))
    found, network = learner._dropping(lesson, lesson.moment), learner._taught.network
    texts = [rows().ids[0, :12].tolist(), rows().ids[1, :5].tolist(), rows().ids[1, 5:12].tolist()]
    left_out = []
    for row, own in ((0, [(0, 0, 12)]), (1, [(1, 12, 17), (2, 17, 24)])):
        before = [*(found[layer] for layer in range(1, LAYERS))]
        gone = {
            layer
            for layer in range(1, LAYERS)
            if torch.equal(found[layer + 1][row * 12 : row * 12 + 12], before[layer - 1][row * 12 : row * 12 + 12])
        }
        left_out.append(gone)
        for text, start, stop in own:
            states = alone(network, texts[text], skip=Skip(attention=frozenset(gone), mlp=frozenset(gone))).hidden
            torch.testing.assert_close(found[LAYERS][start:stop], states, atol=1e-5, rtol=0)
    assert all(LAYERS - 1 in gone for gone in left_out)  # its rate is 1
    draws = {tuple(sorted(gone)) for gone in left_out}
    for step in range(3, 9):
        lesson = teacher.lesson(rows(step=step))
        found = learner._dropping(lesson, lesson.moment)
        draws |= {
            tuple(
                layer
                for layer in range(1, LAYERS)
                if torch.equal(found[layer + 1][row * 12 : row * 12 + 12], found[layer][row * 12 : row * 12 + 12])
            )
            for row in range(2)
        }
    assert len(draws) > 1


def test_what_is_dropped_does_not_depend_on_how_a_step_is_cut_into_passes():
    learner, teacher = learner_of(small(), dropout=0.9)
    bend(learner.module)
    whole = learner._dropping(teacher.lesson(rows(step=4)), rows(step=4).moment)
    part = learner._dropping(teacher.lesson(rows(step=4, first=1, count=1)), rows(step=4, first=1, count=1).moment)
    torch.testing.assert_close(whole[LAYERS][12:], part[LAYERS], atol=1e-5, rtol=0)


@pytest.mark.parametrize("distil", [True, False])
def test_each_exit_is_compared_with_the_original_or_the_text(distil):
    learner, teacher = learner_of(small(), dropout=0.0, rotation=1, distil=distil)
    bend(learner.module)
    lesson = teacher.lesson(rows(step=1))
    outlook = learner.look(lesson)
    weights = exit_weights(LAYERS, learner._options, lesson.moment)
    assert [one.weight for one in outlook.beside] == list(weights.values()) and set(weights) == {1, 2, 3, 4}
    states = learner._taught.run(lesson, taps=tuple(weights)).taps
    x = lesson.ids[:, 1:].flatten()[lesson.counts]
    for layer, one in zip(weights, outlook.beside, strict=True):
        log_q = teacher.logits(states[layer]).log_softmax(-1)[lesson.counts]
        log_p = teacher.logits(lesson.states).log_softmax(-1)[lesson.counts]
        far = (log_p.exp() * (log_p - log_q)).sum(-1) if distil else -log_q.gather(-1, x[:, None])[:, 0]
        assert one.name == "own" and one.rows.tolist() == lesson.counts.nonzero()[:, 0].tolist()
        torch.testing.assert_close(one.values.detach(), far.detach(), atol=1e-5, rtol=1e-5)


def test_exits_learn_and_the_original_target_is_left_alone(tmp_path):
    target = small()
    kept = copy.deepcopy(target.state_dict())
    learner, teacher = learner_of(target, dropout=0.1, exit_scale=2.0)
    objective = DraftObjective(learner, teacher, OWN.rows)
    optimizer = torch.optim.Adam(learner.module.parameters(), lr=0.01)

    def agreement():
        with torch.no_grad():
            lesson = teacher.lesson(rows())
            outlook = learner.look(lesson)
            exits, whole = (teacher.logits(one).argmax(-1) for one in (outlook.guesses[0].states, outlook.states))
            return float((exits == whole)[lesson.counts].float().mean())

    before, losses = agreement(), []
    for step in range(60):
        optimizer.zero_grad()
        found = objective.total(rows(step))
        found[0].backward()
        losses.append(float(found[0].detach()))
        optimizer.step()
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])
    assert agreement() > before + 0.15
    assert all(torch.equal(one, kept[name]) for name, one in target.state_dict().items())
    learner.save(tmp_path)
    assert read_json(tmp_path / "config.json")["exit_layer"] == 2
    assert dict(find_learner("layerskip").drafter_options(tmp_path)) == {"exit_layer": 2}
    served = load_model(tmp_path / TARGET, "float32")
    lesson = teacher.lesson(rows())
    text = rows().ids[0, :12].tolist()
    torch.testing.assert_close(alone(served, text).hidden, learner.look(lesson).states[:12].detach(), atol=1e-4, rtol=0)
    again = find_learner("layerskip").load(learner._options, target, tmp_path)
    torch.testing.assert_close(again.look(lesson).states, learner.look(lesson).states, atol=1e-5, rtol=0)


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(ConfigError, match="exit_layer=4 leaves nothing to verify with"):
        learner_of(small(), exit_layer=4)
    with pytest.raises(ConfigError, match="exit_layer=1 has no weight"):
        learner_of(small(), exit_layer=1)
    with pytest.raises(ConfigError, match="curriculum='steps'"):
        LayerSkipLearning(curriculum="steps")
    rounded = quantize_decoder(
        random_decoder(tiny_config(vocab=VOCAB, layers=4, inner=64), dtype=torch.float32), QuantConfig(bits=8)
    )
    with pytest.raises(CapabilityError, match="rounded"):
        learner_of(rounded)
