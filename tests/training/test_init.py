"""--init goes on from a draft whose shape is its own, also under a target that has learned on."""

import json
from copy import deepcopy

import pytest
import torch

from outdraft.core.errors import ConfigError
from outdraft.core.registry import find_learner
from outdraft.models.load import save_model
from outdraft.testing.tiny import tiny_model
from outdraft.training.course import prepare
from outdraft.training.init import require_shape
from outdraft.training.plan import make_plan
from outdraft.training.pretrain import NextToken

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


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    """One, and what it became by learning on."""
    place = tmp_path_factory.mktemp("targets")
    old = trained_target(place, steps=20)
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
            "kind": kind, "target": str(tmp_path / "target"), "data": (str(tmp_path / "texts.jsonl"),),
            "out": str(tmp_path / name), "options": options, "held_out": 0.1,
            "loop": {"seq_len": 32, "batch_tokens": 128, "micro_tokens": 64}, **more,
        }  # fmt: skip
        return prepare(make_plan(plan), lambda line: None)

    new, again = begun("new"), begun("again", init=str(tmp_path / "old"))
    fresh, kept = (dict(one.learner.module.named_parameters()) for one in (new, again))
    assert {name: one.shape for name, one in kept.items()} == {name: one.shape for name, one in fresh.items()}
    assert all(torch.equal(kept[name], one) for name, one in old.module.named_parameters())
    untaught, taught = (rates(draft_objective(one.learner, one.teacher.target)) for one in (new, again))
    assert taught[0] < 0.9 * untaught[0] and taught[1] > untaught[1] + 0.1, (untaught, taught)
    assert again.judge().score > new.judge().score
