"""Going on from a draft that was trained before: its shape is its own, and options that ask for another are refused, as
is another target than the one that learned with it."""

from collections.abc import Mapping
from typing import Any

from outdraft.core.learner import Learner, LearnMethod, TargetLearner
from outdraft.core.registry import read_options
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError, OutdraftError
from outdraft.options.paths import user_path
from outdraft.training.record import RECORD, fingerprint, read_record, require_target

_Shapes = dict[str, tuple[int, ...]]


def require_shape(
    learner: Learner, method: LearnMethod[Any, Any], given: Mapping[str, Any], target: Decoder, source: str
) -> None:
    """Raise `ConfigError` where the options that the user gave make another network than the one in `source`.

    Also for heads whose target learned with them, under another target: without a target that learns along they would
    be trained for one that they do not know.
    """
    place = user_path(source)
    if not isinstance(learner, TargetLearner) and (place / RECORD).is_file():
        record = read_record(place)
        if record.modifies_target:
            require_target(record, place, "the target of this training", fingerprint(target))
    if not given:
        return
    asked, there = _asked(method, given, target), _shapes(learner)
    if asked is None or asked == there:
        return
    apart = [name for name in sorted(asked.keys() | there.keys()) if asked.get(name) != there.get(name)]
    less = {key: _asked(method, {k: v for k, v in given.items() if k != key}, target) for key in given}
    shape = [key for key, one in less.items() if one != asked]  # those that have a part in the shape
    causes = [  # and in what is another one there
        key for key in shape if (one := less[key]) is None or any(one.get(name) != asked.get(name) for name in apart)
    ]
    told, name = ", ".join(f"{key}={given[key]!r}" for key in causes or shape or given), apart[0]
    raise ConfigError(
        f"--init {source} holds a draft of another shape than {told}: {name} is {_said(there.get(name))} there and "
        f"would be {_said(asked.get(name))}; leave the option out, or train anew without --init"
    )


def _asked(method: LearnMethod[Any, Any], given: Mapping[str, Any], target: Decoder) -> _Shapes | None:
    """None for options that make no network by themselves."""
    try:
        return _shapes(method.new(read_options(method.options, given, "the kind"), target, 0))
    except OutdraftError:
        return None


def _shapes(learner: Learner) -> _Shapes:
    """Of every parameter; and the taps, which leave no other trace."""
    return {**{name: tuple(one.shape) for name, one in learner.module.named_parameters()}, "taps": tuple(learner.taps)}


def _said(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else str(list(shape))
