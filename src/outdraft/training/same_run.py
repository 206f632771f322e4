"""Whether a run goes on as it began: with the same bits, and with scores of one exam.

Data in: the plan and what was made of it, or what a checkpoint says of the run. Data out: settings by name, or an error
that names the first that differs.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from outdraft.models.networks.base import Decoder
from outdraft.models.remake.lora import FOLDER, has_lora
from outdraft.options.errors import ConfigError
from outdraft.options.shown import shown
from outdraft.training.computing import name_of, require_format
from outdraft.training.config import LoopConfig
from outdraft.training.corpus import TrainingCorpus
from outdraft.training.plan import TrainPlan
from outdraft.training.record import fingerprint
from outdraft.weights.digest import digest_weights
from outdraft.weights.hub import resolve


def settings_of(
    plan: TrainPlan, config: LoopConfig, target: Decoder, texts: TrainingCorpus, held_out: TrainingCorpus
) -> dict[str, Any]:
    """What must be the same when a run goes on, so that it ends with the same bits and its scores are of one exam."""
    return {
        "kind": plan.kind,
        "options": repr(sorted(plan.options.items())),
        "loss": repr(sorted(plan.loss.items())),
        "seed": plan.seed,
        "tokens": plan.tokens,
        "parallel": plan.parallel,
        "same_order": plan.same_order,
        "on_policy": plan.on_policy,
        "reinforce": repr(plan.reinforce),
        "target": fingerprint(target)["weights"],
        "dtype": name_of(target.dtype),
        **_beginning(plan.init),
        "corpus tokens": len(texts.ids),
        "texts": texts.digest,
        "held-out texts": held_out.digest,
        "held_out_texts": plan.held_out_texts,
        "depth": plan.depth,
        "temperature": plan.temperature,
        "tokens of a step": config.batch_tokens,
        "steps in all": config.steps,  # also where the plan leaves them open
        **plan.loop.of_steps,
        "compile": False,
        "loss_temperature": 1.0,  # older versions could choose them, and noted them
    }


def _beginning(init: str | None) -> dict[str, Any]:
    """The draft that a run began with, and the changes of its target where that learned along."""
    if init is None:
        return {"init": None}
    place = resolve(init)
    changes = {"lora of init": digest_weights(place / FOLDER)} if has_lora(place) else {}
    return {"init": digest_weights(place), **changes}


def require_same(run_dir: Path, *, begun: Mapping[str, Any], now: Mapping[str, Any], say: Callable[[str], Any]) -> None:
    """Raise `ConfigError` for a run of other settings. What an older version did not note cannot be compared."""
    theirs = {"dtype": now["dtype"], **begun}
    require_format(run_dir, str(theirs["dtype"]), str(now["dtype"]))
    for key in sorted(theirs):
        if now.get(key) != theirs[key]:
            raise ConfigError(
                f"{run_dir} holds a run with {key}={shown(theirs[key])}, not {shown(now.get(key))}: "
                "continue with the same settings, texts and number of workers, or name another directory"
            )
    if unknown := sorted(now.keys() - theirs.keys()):
        say(
            f"{run_dir} was begun by an older version, which did not note {', '.join(unknown)}: whether they "
            "are the same now is not checked"
        )
