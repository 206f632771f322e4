"""--init goes on from the changes of a target that a training wrote: where it ended, and not twice."""

import json

import pytest
import torch
from finetune.texts import VOCAB, small

from outdraft.core.learner_registry import find_learner
from outdraft.models.files.load import save_model
from outdraft.options.errors import ConfigError, ModelLoadError
from outdraft.training.course import prepare
from outdraft.training.plan import make_plan
from outdraft.training.record import write_record
from outdraft.training.train import dry_run, make_record, save_draft

KINDS = {
    "layerskip": {"exit_layer": 3, "exit_scale": 2.0, "rank": 4},
    "cllm": {"window": 4, "own_weight": 0.1, "rank": 4},
    "medusa": {"joint": True, "num_heads": 2, "warmup_share": 0.0, "rank": 4},
}
SAME = {
    kind: {k: v for k, v in one.items() if k not in ("rank", "exit_layer", "num_heads")} for kind, one in KINDS.items()
}


@pytest.fixture
def place(tmp_path):
    save_model(small(), tmp_path / "target")
    ids = torch.randint(VOCAB, (30, 24), generator=torch.Generator().manual_seed(3)).tolist()
    lines = [json.dumps({"prompt_token_ids": row[:2], "token_ids": row[2:]}) for row in ids]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    return tmp_path


def course(place, kind, out, target="target", **more):
    loop = {"seq_len": 16, "batch_tokens": 32, "steps": 6, "warmup": 1, "lr": 0.05, "muon_lr": 0.05}
    plan = {"kind": kind, "target": str(place / target), "data": [str(place / "texts.jsonl")], "out": str(place / out)}
    return prepare(make_plan({**plan, "held_out": 0.2, "loop": loop, **more}), lambda line: None)


def trained(place, kind):
    """A run that ended, whose last weights are saved."""
    one = course(place, kind, "old", options=KINDS[kind])
    one.loop.run()
    save_draft(one, place / "old")
    write_record(place / "old", make_record(one, []))
    return one


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_from_the_changes_of_another(kind, place):
    old = trained(place, kind)
    again = course(place, kind, "new", init=str(place / "old"), options=SAME[kind])
    kept = dict(old.learner.module.named_parameters())
    assert all(torch.equal(one, kept[name]) for name, one in again.learner.module.named_parameters())
    assert again.judge() == old.judge() != course(place, kind, "fresh", options=KINDS[kind]).judge()
    rows = old.loop.data.rows(0, 0, 2, 17)
    assert torch.equal(again.loop.objective.total(rows), old.loop.objective.total(rows))
    with pytest.raises(ConfigError, match=r"another shape than alpha=3.0: alpha is \[\d+\] there and would be \[3.0\]"):
        course(place, kind, "new", init=str(place / "old"), options={**SAME[kind], "alpha": 3.0})
    with pytest.raises(ConfigError, match="its changes are in this target already, which would change twice: name"):
        course(place, kind, "new", "old/target", init=str(place / "old"), options=SAME[kind])


def test_drafts_come_from_the_layer_that_they_came_from_unless_another_is_named(place):
    trained(place, "layerskip")
    for options, exit_layer in (({}, 3), ({"exit_layer": 2}, 2)):
        assert (
            course(place, "layerskip", "new", init=str(place / "old"), options=options).learner.exit_layer == exit_layer
        )


def test_changes_that_changed_nothing_go_on_under_the_target_that_they_left(place):
    one = course(place, "cllm", "old", options=KINDS["cllm"])
    save_draft(one, place / "old")
    write_record(place / "old", make_record(one, []))
    assert course(place, "cllm", "new", init=str(place / "old"), options={"window": 4})


@pytest.mark.parametrize("kind", ["layerskip", "cllm"])
def test_where_there_are_no_changes_it_is_said_which_directory_has_them(kind, place):
    trained(place, kind)
    for init in ("old/lora", "target"):
        with pytest.raises(ModelLoadError, match=rf"{init} has no folder lora.*: give the directory .*its --out\)"):
            course(place, kind, "new", init=str(place / init))


def test_a_run_does_not_go_on_from_other_changes(place):
    trained(place, "cllm")
    settings = {"init": str(place / "old"), "options": {"window": 4}}
    one = course(place, "cllm", "new", **settings)
    one.loop.run(until=2)
    course(place, "cllm", "new", **settings).loop.resume()
    method = find_learner("cllm")
    method.new(method.options(rank=4), small(), 8).save(place / "old")
    with pytest.raises(ConfigError, match=r"holds a run with lora of init='[0-9a-f]{16}', not '[0-9a-f]{16}'"):
        course(place, "cllm", "new", **settings).loop.resume()


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_follows_its_dry_run(kind, place):
    dry_run(course(place, kind, "old", options=KINDS[kind]))
    trained(place, kind)
    (place / "old/run/checkpoint.pt").unlink()  # and what was trained is not written over
    with pytest.raises(ConfigError, match="holds a model"):
        course(place, kind, "old", options=KINDS[kind])


def test_heads_that_learned_with_their_target_go_on_alone_under_it(place):
    trained(place, "medusa")
    under = {"target": "old/target", "init": str(place / "old")}
    for options in ({}, {"num_heads": 2}, {"decay": 0.5}, {"num_heads": 2, "joint": False}):
        course(place, "medusa", "new", options=options, **under)
    with pytest.raises(ConfigError, match="another shape than num_heads=3"):
        course(place, "medusa", "new", options={"num_heads": 3}, **under)
