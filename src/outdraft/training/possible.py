"""Whether a plan can be carried out: what cannot is refused before any work, with the cure.

the plan itself    files to learn from, losses that go together
the target         weights that have gradients
the draft          a shape that the options agree with (--init), parts that can be split among workers
--out              neither read from, nor a model of something else
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from outdraft.core.learner import TARGET, Learner, LearnMethod, TargetLearner
from outdraft.core.registry import read_options
from outdraft.learn.losses import OF_TEXT
from outdraft.models.files.load import load_model
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.lora import Lora, has_lora
from outdraft.options.errors import ConfigError, OutdraftError
from outdraft.options.paths import user_path
from outdraft.training.loop import CHECKPOINT
from outdraft.training.plan import TrainPlan
from outdraft.training.record import RECORD, TrainingRecord, fingerprint, read_record, require_target
from outdraft.weights.hub import resolve

_Shapes = dict[str, tuple[float, ...]]


def require_possible(plan: TrainPlan) -> None:
    """Raise `ConfigError` for a plan that teaches nothing, or whose parts exclude each other."""
    if not plan.data:
        raise ConfigError("there is nothing to learn from: name files with --data FILE (texts, chats, or answers)")
    if plan.on_policy and (said := [name for name in OF_TEXT if plan.loss.get(name)]):
        raise ConfigError(
            f"loss {said[0]} learns the text's own tokens, which on_policy={plan.on_policy:g} replaces by the draft's: "
            "take a loss between distributions, such as forward_kl, or leave on_policy out"
        )


def require_trainable(target: Decoder, name: str) -> None:
    """Raise `ConfigError` for weights whose gradients are no use."""
    if target.config.quant is not None:
        raise ConfigError(f"{name} has rounded weights: train for the model that they were rounded from")
    if target.dtype == torch.float16:
        raise ConfigError(f"{name} is float16, whose gradients overflow: train with dtype bfloat16 or float32")


def require_splittable(plan: TrainPlan, learner: Learner) -> None:
    """Raise `ConfigError` for a draft that `fully_shard` cannot split."""
    if isinstance(learner, TargetLearner):
        raise ConfigError("parallel=fully_shard cannot split a target that is trained too: take parallel=ddp")
    if plan.on_policy:
        raise ConfigError(
            f"on_policy={plan.on_policy:g} needs the whole draft, and parallel=fully_shard splits it: take parallel=ddp"
        )


def require_room(out: Path, needed: Seq[Path]) -> None:
    """Raise `ConfigError` where something stands that is no draft of ours, or that is needed."""
    if out.resolve() in needed:
        raise ConfigError(f"--out {out} is a directory that the training reads from: name another directory")
    run, is_trained = out / "run", (out / RECORD).exists()
    if (out / "config.json").exists() and not (run / CHECKPOINT).exists() and (is_trained or not run.is_dir()):
        raise ConfigError(f"--out {out} holds a model, which training would write over: name another directory")


def require_room_for_target(out: Path, needed: Seq[Path]) -> None:
    """The same where the changed target of a kind that teaches its target will be written."""
    place = out / TARGET
    if place.resolve() in needed:
        raise ConfigError(
            f"--out {out} would write the changed target to {place}, which the training reads from: name another "
            "directory"
        )
    is_ours = (out / "config.json").exists() or (out / "run" / CHECKPOINT).exists()  # the draft was written with it
    is_untrained = has_lora(out) and not (out / RECORD).exists()  # by a dry run, of a kind without a config of its own
    if (place / "config.json").exists() and not (is_ours or is_untrained):
        raise ConfigError(
            f"--out {out} would write the changed target to {place}, which holds a model: name another directory"
        )


def require_own_target(draft: Path, target: Decoder, source: Path) -> None:
    """Raise `ConfigError` unless the draft's record is about this target, which lies in `source`.

    A digest is of weights in the record's number format; where the target was opened in another, it is opened again.
    """
    record = read_record(draft)
    same = str(target.dtype) == f"torch.{record.dtype}"
    require_target(record, draft, str(source), fingerprint(target if same else load_model(source, record.dtype)))


def require_shape(
    learner: Learner, method: LearnMethod[Any, Any], given: Mapping[str, Any], target: Decoder, source: str
) -> None:
    """Raise `ConfigError` where the options that the user gave make another network than the one in `source`.

    Options that were not given are those that the network was made with, where its record says them. Those without a
    part in the shape may be given alone; one that repeats what it would be anyhow may ask for that shape.

    Also for heads whose target learned with them, under another target: without a target that learns along they would
    be trained for one that they do not know; and for changes of a target, under the changed one, which would change
    twice.
    """
    place = resolve(source) if source.startswith("zoo:") else user_path(source)
    record = read_record(place) if (place / RECORD).is_file() else None
    if record is not None and record.modifies_target:
        _require_original(record, place, target, learns=isinstance(learner, TargetLearner))
    if not given:
        return
    known = {one.name for one in fields(method.options)}
    made = {key: value for key, value in (record.options if record else {}).items() if key in known}
    asked, there = _asked(method, {**made, **given}, target), _shapes(learner)
    if asked is None or there in (asked, _asked(method, given, target)):
        return
    if asked == _asked(method, made, target) and not _repeats(method, made, given):
        return
    apart = [name for name in sorted(asked.keys() | there.keys()) if asked.get(name) != there.get(name)]
    less = {key: _asked(method, {**made, **{k: v for k, v in given.items() if k != key}}, target) for key in given}
    shape = [key for key, one in less.items() if one != asked]  # those that have a part in the shape
    causes = [  # and in what is another one there
        key for key in shape if (one := less[key]) is None or any(one.get(name) != asked.get(name) for name in apart)
    ]
    told, name = ", ".join(f"{key}={given[key]!r}" for key in causes or shape or given), apart[0]
    raise ConfigError(
        f"--init {source} holds a draft of another shape than {told}: {name} is {_said(there.get(name))} there and "
        f"would be {_said(asked.get(name))}; leave the option out, or train anew without --init"
    )


def _require_original(record: TrainingRecord, place: Path, target: Decoder, *, learns: bool) -> None:
    """`learns`: a target learns along, by low-rank changes of the one that is named."""
    known = fingerprint(target)
    if not learns:
        require_target(record, place, "the target of this training", known)
    elif _is(known, record.target) and not _is(known, record.original_target):
        raise ConfigError(
            f"--init {place}: its changes are in this target already, which would change twice: name the target that "
            "they began from (--target), or train this one without --init"
        )


def _is(known: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    return all(known.get(key) == value for key, value in target.items())


def _repeats(method: LearnMethod[Any, Any], made: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    before, now = (read_options(method.options, one, "the kind") for one in (made, {**made, **given}))
    return any(getattr(before, key) == getattr(now, key) for key in given)


def _asked(method: LearnMethod[Any, Any], given: Mapping[str, Any], target: Decoder) -> _Shapes | None:
    """None for options that make no network by themselves."""
    try:
        return _shapes(method.new(read_options(method.options, given, "the kind"), target, 0))
    except OutdraftError:
        return None


def _shapes(learner: Learner) -> _Shapes:
    """Of every parameter; and the taps, the draft's vocabulary and alpha, which may leave no other trace."""
    named = (*learner.module.named_parameters(), *learner.module.named_buffers())
    shapes = {name: tuple(one.shape) for name, one in named if isinstance(one, nn.Parameter) or name.endswith("vocab")}
    alpha = tuple(one.config.alpha for one in learner.module.modules() if isinstance(one, Lora))
    return {**shapes, "alpha": alpha, "taps": tuple(learner.taps)}


def _said(shape: tuple[float, ...] | None) -> str:
    return "missing" if shape is None else str(list(shape))
