"""What a course refuses before it begins, and which settings a run goes on with."""

import itertools
import json
from types import SimpleNamespace

import pytest
import torch

from outdraft.core.learner_registry import find_learner
from outdraft.drafters.shared.heads.joint import JointLearner
from outdraft.models.files.load import load_model, save_model
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model
from outdraft.training.config import LoopConfig
from outdraft.training.course import prepare
from outdraft.training.plan import make_plan
from outdraft.training.team import Team
from outdraft.training.train import dry_run

VOCAB = 61
JOINT = {"joint": True, "num_heads": 2}


def write_texts(path, seed, count=40, low=0):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(low, VOCAB, (count, 40), generator=generator).tolist()
    path.write_text("".join(json.dumps({"prompt_token_ids": row[:2], "token_ids": row[2:]}) + "\n" for row in ids))
    return str(path)


@pytest.fixture
def place(tmp_path):
    save_model(tiny_model(vocab=VOCAB, layers=3, seed=1, dtype=torch.float32), tmp_path / "target")
    write_texts(tmp_path / "texts.jsonl", 1)
    write_texts(tmp_path / "valid.jsonl", 2, count=8)
    return tmp_path


def course(place, out="out", *, kind="medusa", team=None, **more):
    loop = {"seq_len": 32, "batch_tokens": 128, "micro_tokens": 64, "steps": 6, "warmup": 1, "eval_every": 2}
    plan = {
        "kind": kind,
        "target": str(place / "target"),
        "data": (str(place / "texts.jsonl"),),
        "valid": (str(place / "valid.jsonl"),),
        "out": str(place / out),
        **more,
        "loop": {**loop, **more.get("loop", {})},
    }
    return prepare(make_plan(plan), lambda line: None, team)


def test_a_changed_target_is_not_written_over_what_the_training_reads(place):
    """A kind that teaches its target writes OUT/target, which is the user's own where OUT is the folder above it."""
    with pytest.raises(ConfigError, match=r"would write the changed target to .*target, which the training reads from"):
        course(place, ".", options=JOINT)
    assert course(place, ".")  # other kinds write nothing there
    (place / "linked").mkdir()
    (place / "linked/target").symlink_to(place / "target")
    with pytest.raises(ConfigError, match="which the training reads from: name another directory"):
        course(place, "linked", options=JOINT)


def test_a_changed_target_is_not_written_over_another_model(place):
    save_model(tiny_model(vocab=VOCAB, layers=2, seed=5, dtype=torch.float32), place / "out/target")
    with pytest.raises(ConfigError, match=r"would write the changed target to .*target, which holds a model"):
        course(place, options=JOINT)


@pytest.mark.parametrize("loop", [{"seq_len": 8}, {"final_seq_len": 8}])
def test_a_window_that_is_longer_than_a_row_is_refused(place, loop):
    asked = {"kind": "draft_model", "loss": {"forward_kl": 1.0, "reinforce": 0.1}, "loop": loop}
    with pytest.raises(ConfigError, match="window=9 of the loss reinforce is longer than a row of 8 tokens: take"):
        course(place, reinforce={"window": 9}, **asked)
    course(place, reinforce={"window": 8}, **asked).loop.try_step()


def test_a_loss_that_a_kind_does_not_make_is_refused_before_any_training(place):
    asked = {"loss": {"forward_kl": 1.0, "smooth_l1": 1.0}}
    with pytest.raises(ConfigError, match=r"loss smooth_l1 compares .* and this kind guesses tokens alone"):
        course(place, **asked)
    assert course(place, kind="eagle1", **asked)


def test_held_out_examples_that_are_learned_from_are_counted(place):
    plan = {"kind": "medusa", "target": str(place / "target"), "data": [str(place / "texts.jsonl")]}
    lines = (place / "texts.jsonl").read_text().splitlines()[:3] + (place / "valid.jsonl").read_text().splitlines()
    (place / "mixed.jsonl").write_text("\n".join(lines))
    found = {}
    for name in ("valid", "mixed"):
        told = []
        prepare(make_plan({**plan, "valid": [str(place / f"{name}.jsonl")], "out": str(place / name)}), told.append)
        found[name] = [line for line in told if "held-out" in line]
    assert found == {
        "valid": [],
        "mixed": ["3 of 11 held-out examples are learned from too: they are judged by memory"],
    }


def begun(place, **settings):
    """A run that has come to step 2 of 6."""
    one = course(place, **settings)
    one.loop.evaluate()
    one.loop.run(until=2)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"depth": 1}, "depth=3, not 1"),
        ({"temperature": 0.5}, r"temperature=1\.0, not 0\.5"),
        ({"held_out_texts": 8}, "held_out_texts=64, not 8"),
        ({"valid": ("texts.jsonl",)}, "held-out texts='[0-9a-f]{16}', not '[0-9a-f]{16}'"),
    ],
)
def test_a_run_does_not_go_on_under_another_exam(place, change, says):
    """Its best score is of the exam that it began with: no weights would be better than those under an easier one."""
    begun(place, depth=3)
    change = {
        key: tuple(str(place / one) for one in value) if key == "valid" else value for key, value in change.items()
    }
    other = course(place, **{"depth": 3, **change})
    with pytest.raises(ConfigError, match=f"holds a run with {says}: continue with the same settings, texts"):
        other.loop.resume()
    course(place, depth=3, loop={"eval_every": 1}).loop.resume()  # how often, is no other exam


def test_a_run_does_not_go_on_with_other_texts_of_the_same_size(place):
    """The most frequent tokens would be others, and with them the meaning of each row of the head."""
    settings = {"kind": "eagle3", "options": {"draft_vocab_size": 12}}
    begun(place, **settings)
    vocab = course(place, **settings).learner.net.vocab.tolist()
    write_texts(place / "texts.jsonl", 5, low=40)
    other = course(place, **settings)
    assert other.learner.net.vocab.tolist() != vocab
    with pytest.raises(ConfigError, match="holds a run with texts='"):
        other.loop.resume()


def saved(place, name, kind, **options):
    method = find_learner(kind)
    method.new(method.options(**options), load_model(place / "target"), 0).save(place / name)
    return str(place / name)


def test_a_run_does_not_go_on_from_another_beginning(place):
    old = saved(place, "old", "eagle3", draft_vocab_size=12)
    begun(place, kind="eagle3", options={"draft_vocab_size": 12}, init=old)
    course(place, kind="eagle3", options={"draft_vocab_size": 12}, init=old).loop.resume()
    without = course(place, kind="eagle3", options={"draft_vocab_size": 12})
    with pytest.raises(ConfigError, match=r"holds a run with init='[0-9a-f]{16}', not None"):
        without.loop.resume()


def forget(place, *keys):
    """As an older version wrote the checkpoint."""
    path = place / "out/run/checkpoint.pt"
    state = torch.load(path, weights_only=True)
    state["about"] = {key: value for key, value in state["about"].items() if key not in keys}
    torch.save(state, path)


def test_a_run_of_an_older_version_goes_on_and_hears_what_is_not_checked(place):
    begun(place, depth=3)
    forget(place, "depth", "init", "texts")
    one, told = course(place, depth=3), []
    one.loop.journal.report = told.append
    one.loop.resume()
    one.loop.run()
    assert one.loop.step == 6
    assert "was begun by an older version, which did not note depth, init, texts: whether they are the same" in told[0]


def test_a_run_of_an_older_version_goes_on_that_noted_more_settings(place):
    """Two of them could be chosen then: a run that did goes on with neither."""
    begun(place)
    path = place / "out/run/checkpoint.pt"
    state = torch.load(path, weights_only=True)
    state["about"] |= {"compile": False, "loss_temperature": 1.0, "bfloat16": None}
    torch.save(state, path)
    course(place).loop.resume()
    state["about"]["loss_temperature"] = 2.0
    torch.save(state, path)
    with pytest.raises(ConfigError, match="holds a run with loss_temperature="):
        course(place).loop.resume()


def test_a_run_of_an_older_version_from_a_beginning_of_another_shape_is_refused(place):
    begun(place, kind="eagle", init=saved(place, "old", "eagle", intermediate_size=16))
    forget(place, "init")
    with pytest.raises(ConfigError, match="holds a run of another network"):
        course(place, kind="eagle").loop.resume()


def test_a_run_does_not_go_on_with_another_number_of_workers_where_the_batch_follows_them(place, monkeypatch):
    """A thousandth of the text is another number of rows for three workers than for one."""
    open_loop = {"steps": 0, "batch_tokens": 0, "seq_len": 39}
    begun(place, loop=open_loop)
    monkeypatch.setattr(Team, "wait", lambda self: None)
    monkeypatch.setattr("outdraft.training.loop.DistributedDataParallel", lambda loss, **settings: loss)
    three = course(place, team=Team(size=3), loop=open_loop)
    with pytest.raises(ConfigError, match=r"tokens of a step=1014, not 936: continue .* number of workers"):
        three.loop.resume()


def test_a_dry_run_measures_steps_in_which_the_target_learns_too(place, monkeypatch):
    """The first steps, in which the heads learn alone, cost less than most."""
    asked, own = [], JointLearner._own_loss
    monkeypatch.setattr(JointLearner, "_own_loss", lambda self, *given: asked.append(1) or own(self, *given))
    told = dry_run(course(place, options={**JOINT, "warmup_share": 0.5}, loop={"steps": 30}))
    assert len(asked) == 3 * 2, "two passes a step"
    assert told["steps"] == 30 and told["seconds_a_step"] > 0
    assert dry_run(course(place, "short", loop={"steps": 1}))["seconds_a_step"] > 0


def test_learners_hear_how_far_a_run_is_whose_seconds_are_bounded(place, monkeypatch):
    """And it ends with the same bits after it was resumed, where every step takes as long."""
    ticks, ends = itertools.count(), []
    monkeypatch.setattr("outdraft.training.loop.time", SimpleNamespace(monotonic=lambda: next(ticks) / 4))

    def begin(out):
        one = course(place, out, options=JOINT, loop={"steps": 0, "seconds": 5.0, "eval_every": 1000})
        honest = one.learner.look
        one.learner.look = lambda lesson: ends.append((lesson.moment.step, lesson.moment.steps)) or honest(lesson)
        return one

    whole = begin("whole")
    whole.loop.run()
    assert sorted({step for step, _ in ends}) == list(range(20))
    assert {end for step, end in ends if step > 1} == {20}, "the first two steps do not know the pace"
    changed = {name: one for name, one in whole.learner.module.named_parameters() if name.endswith(".b")}
    assert changed and all(bool(one.any()) for one in changed.values()), "the target learned along"
    begin("parts").loop.run(until=8)
    parts = begin("parts")
    parts.loop.resume()
    ends.clear()
    parts.loop.run()
    assert ends[0] == (8, 20)
    for name, one in parts.learner.module.named_parameters():
        assert torch.equal(one, whole.learner.module.get_parameter(name)), name


def test_done_held_out_and_skipped_examples_are_all_that_were_read(place):
    told = course(place).accounts
    assert (told.read, told.kept, told.held_out, told.skipped) == (48, 40, 8, 0)


def test_a_run_in_a_folder_of_its_data_goes_on(place):
    """Its own log lies there then, which is no example."""
    begun(place, data=(str(place),), valid=(), held_out=0.2)
    again = course(place, data=(str(place),), valid=(), held_out=0.2)
    assert again.accounts.read == 48 and (place / "out/run/log.jsonl").exists()
    again.loop.resume()


def test_of_a_data_directory_the_records_are_learned_and_not_its_readme(place):
    (place / "set").mkdir()
    (place / "texts.jsonl").rename(place / "set/texts.jsonl")
    (place / "set/README.md").write_text("This is a data set.")  # a text, which this target cannot read
    assert course(place, data=(str(place / "set"),)).accounts.kept == 40


@pytest.mark.parametrize("field", ["seconds", "lr", "muon_lr", "weight_decay"])
def test_a_number_below_zero_is_refused(field):
    with pytest.raises(ConfigError, match=f"{field}=-1"):
        LoopConfig(**{field: -1.0})
