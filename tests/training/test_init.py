"""--init goes on from a draft whose shape is its own, also under a target that has learned on."""

import json
from copy import deepcopy

import pytest
import torch

from lab.zoo.pretrain import NextToken
from outdraft.core.learner_registry import find_learner
from outdraft.models.files.load import load_model, save_model
from outdraft.models.remake.quantize import round_decoder
from outdraft.nn.quant.config import QuantConfig
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import random_decoder, tiny_config, tiny_model
from outdraft.training.course import prepare
from outdraft.training.plan import make_plan
from outdraft.training.possible import require_shape
from outdraft.training.record import fingerprint, write_record

from .toys import draft_loop, draft_objective, rates, toy_ids, toy_loop, toy_sampler, trained_target


@pytest.mark.parametrize(
    ("kind", "made", "same", "other", "culprit"),
    [
        ("medusa", {"num_heads": 2}, {"num_heads": 2, "decay": 0.5}, {"num_heads": 3, "decay": 0.5}, "num_heads=3:"),
        (
            "eagle",
            {"taps": (0, 1)},
            {"taps": (0, 1), "num_steps": 2},
            {"taps": (0, 2), "num_steps": 2},
            r"taps=\(0, 2\):",
        ),
        ("draft_model", {"layers": (0, 2)}, {"layers": (0, 2)}, {"layers": (0,)}, r"layers=\(0,\):"),
        ("early_exit", {"inner_size": 8}, {}, {"inner_size": 4}, "inner_size=4: down"),
    ],
)
def test_options_of_another_shape_are_named(kind, made, same, other, culprit):
    target = tiny_model(vocab=61, layers=3, seed=1, dtype=torch.float32)
    method = find_learner(kind)
    learner = method.new(method.options(**made), target, 0)
    require_shape(learner, method, same, target, "OLD")
    with pytest.raises(ConfigError, match=f"--init OLD holds a draft of another shape than {culprit}"):
        require_shape(learner, method, other, target, "OLD")


def test_an_option_without_a_part_in_the_shape_leaves_it_as_it_is(tmp_path):
    """Where a record says of what options the draft was made, these need not be given again, either."""
    target = tiny_model(vocab=61, layers=3, seed=1, dtype=torch.float32)
    method = find_learner("medusa")
    learner = method.new(method.options(num_heads=2), target, 0)
    require_shape(learner, method, {"decay": 0.5, "noise": 0.1}, target, str(tmp_path))
    for options in ({"num_heads": 4}, {"num_heads": 4, "decay": 0.5}, {"num_layers": 2}):  # the first is the default
        with pytest.raises(ConfigError, match="holds a draft of another shape than num_"):
            require_shape(learner, method, options, target, str(tmp_path))
    told = {"kind": "medusa", "dtype": "float32", "target": fingerprint(target), "promises": []}
    write_record(tmp_path, {**told, "plan": {"options": {"num_heads": 2, "forgotten": 1}}})
    for same in ({"decay": 0.5}, {"num_heads": 2}):
        require_shape(learner, method, same, target, str(tmp_path))
    for other, culprit in (({"num_heads": 4, "decay": 0.5}, "num_heads=4:"), ({"num_layers": 2}, "num_layers=2:")):
        with pytest.raises(ConfigError, match=f"holds a draft of another shape than {culprit}"):
            require_shape(learner, method, other, target, str(tmp_path))


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    """One, and what it became by learning on."""
    place = tmp_path_factory.mktemp("targets")
    old = trained_target()
    new = deepcopy(old).requires_grad_(True)
    toy_loop(NextToken(new), place / "more", data=toy_sampler(9), steps=20).run()
    return old, new.requires_grad_(False)


@pytest.mark.parametrize(("kind", "options"), [("medusa", {"num_heads": 2}), ("eagle1", {"noise": 0.0})])
def test_a_draft_goes_on_under_a_target_that_was_trained_on(kind, options, targets, tmp_path):
    """Its shape stays, and it begins with a lower loss than a new one, and accepted more often."""
    method, (before, target) = find_learner(kind), targets
    old = method.new(method.options(**options), before, 0)
    draft_loop(draft_objective(old, before), tmp_path / "run", steps=25).run()
    old.save(tmp_path / "old")
    save_model(target, tmp_path / "target")
    lines = [json.dumps({"token_ids": row}) for row in toy_ids(1, 1600)[:1600].reshape(40, 40).tolist()]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))

    def begun(name, **more):
        plan = {
            "kind": kind,
            "target": str(tmp_path / "target"),
            "data": (str(tmp_path / "texts.jsonl"),),
            "out": str(tmp_path / name),
            "options": options,
            "held_out": 0.1,
            "loop": {"seq_len": 32, "batch_tokens": 128, "micro_tokens": 64},
            **more,
        }
        return prepare(make_plan(plan), lambda line: None)

    new, again = begun("new"), begun("again", init=str(tmp_path / "old"))
    fresh, kept = (dict(one.learner.module.named_parameters()) for one in (new, again))
    assert {name: one.shape for name, one in kept.items()} == {name: one.shape for name, one in fresh.items()}
    assert all(torch.equal(kept[name], one) for name, one in old.module.named_parameters())
    untaught, taught = (rates(draft_objective(one.learner, one.teacher.target)) for one in (new, again))
    assert taught[0] < 0.9 * untaught[0] and taught[1] > untaught[1] + 0.1, (untaught, taught)
    assert again.judge().score > new.judge().score


def test_rounded_weights_are_no_beginning(tmp_path):
    """Only what is not rounded would learn: norms, embeddings and the head."""
    method, target = find_learner("draft_model"), random_decoder(tiny_config(hidden=64, inner=64), dtype=torch.float32)
    method.new(method.options(), target, 0).save(tmp_path / "draft")
    rounded = round_decoder(load_model(tmp_path / "draft"), QuantConfig(bits=8, group_size=32))
    save_model(rounded, tmp_path / "rounded")
    method.load(method.options(), target, tmp_path / "draft")
    with pytest.raises(ConfigError, match="rounded has rounded weights: go on from the draft that they were rounded"):
        method.load(method.options(), target, tmp_path / "rounded")


@pytest.mark.parametrize(
    ("family", "on_policy", "says"),
    [
        ("gpt2", 0.0, r"learned positions for 16 tokens.*seq_len=16\)"),
        ("llama", 0.01, r"context holds 16.*seq_len=15\)"),
    ],
)
def test_rows_that_a_draft_cannot_read_are_refused_at_the_first_step(family, on_policy, says, tmp_path):
    save_model(tiny_model(vocab=61, seed=1, dtype=torch.float32), tmp_path / "target")
    draft = random_decoder(tiny_config(family, layers=1, max_len=16), dtype=torch.float32, exact=False)
    save_model(draft, tmp_path / "draft")
    lines = [json.dumps({"token_ids": [(i * j) % 61 for j in range(40)]}) for i in range(1, 30)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))

    def run(seq_len):
        plan = {
            "kind": "draft_model",
            "target": str(tmp_path / "target"),
            "data": (str(tmp_path / "texts.jsonl"),),
            "out": str(tmp_path / f"out{seq_len}"),
            "init": str(tmp_path / "draft"),
            "on_policy": on_policy,
            "loop": {"seq_len": seq_len, "batch_tokens": 128, "steps": 2},
        }
        course = prepare(make_plan(plan), lambda line: None)
        course.loop.run()
        return course.loop.progress.step

    with pytest.raises(ConfigError, match=says):
        run(32)
    assert run(15) == 2


def test_heads_whose_target_learned_along_do_not_go_on_under_another(tmp_path):
    """With `joint` the changes lie beside them, and are those of the original target."""
    method, target = find_learner("medusa"), tiny_model(vocab=61, layers=3, seed=1, dtype=torch.float32)
    old = method.new(method.options(joint=True), target, 0)
    with torch.no_grad():
        for parameter in old.module.parameters():
            parameter.add_(0.1)
    old.save(tmp_path)
    taught = load_model(tmp_path / "target")
    told = {
        "kind": "medusa",
        "dtype": "float32",
        "target": fingerprint(taught),
        "modifies_target": True,
        "promises": [],
    }
    write_record(tmp_path, told)
    for options, under in (({}, taught), ({"joint": True}, target)):
        again = method.load(method.options(**options), under, tmp_path)
        require_shape(again, method, options, under, str(tmp_path))
    again = method.load(method.options(), target, tmp_path)
    with pytest.raises(ConfigError, match="was trained together with its target"):
        require_shape(again, method, {}, target, str(tmp_path))
