"""Find the skip set once: Bayesian optimisation over one variable a sublayer, left out where it is above one half.

Zhang et al., "Draft & verify", 2023, https://arxiv.org/abs/2309.08168. The optimiser is Optuna's Gaussian process (the
extra `outdraft[tune]`). Every trial is kept in a journal, so that a search that was interrupted goes on. Data in: a
function that says what a set is worth; data out: the best set.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from outdraft.core.skip import Skip
from outdraft.drafters.shared.own_layers.skip_sets import alternating
from outdraft.options.errors import ConfigError

_BEGIN_WITH = (0.0, 0.25, 0.45)  # plain sets that are tried first, by how much they leave out


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The best set of parts to leave out that a search found."""

    skip: Skip
    score: float
    num_trials: int  # those of an earlier search included


def tune(
    measure: Callable[[Skip], float],
    num_layers: int,
    *,
    trials: int,
    journal: Path,
    name: str = "",
    seed: int = 0,
    tell: Callable[[Tuned], object] = lambda best: None,
) -> Tuned:
    """Search until there are `trials` trials under this `name`; `tell` hears the best after each.

    Raises `ConfigError` without Optuna.
    """
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise ConfigError(
            "a skip set is tuned with Optuna, which is not installed: pip install 'outdraft[tune]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names = [f"{half} {layer}" for layer in range(num_layers) for half in ("attention", "mlp")]
    study = optuna.create_study(
        direction="maximize",
        study_name=f"{num_layers} layers {name}",
        storage=JournalStorage(JournalFileBackend(str(journal))),
        sampler=optuna.samplers.GPSampler(seed=seed, n_startup_trials=min(10, trials), deterministic_objective=False),
        load_if_exists=True,
    )
    if not study.trials:
        for ratio in _BEGIN_WITH:
            plain = alternating(num_layers, ratio)
            study.enqueue_trial({name: 0.75 if _leaves_out(plain, name) else 0.25 for name in names})
    while (best := _best(study.trials)).num_trials < trials:
        trial = study.ask()
        chosen = {name: trial.suggest_float(name, 0.0, 1.0) > 0.5 for name in names}
        study.tell(trial, measure(_skip(chosen)))
        tell(_best(study.trials))
    return best


def _best(trials: list) -> Tuned:  # type: ignore[type-arg]
    """The best of those whose worth was reported."""
    told = [trial for trial in trials if trial.value is not None]
    if not told:
        return Tuned(skip=Skip(), score=0.0, num_trials=0)
    first = max(told, key=lambda trial: trial.value)
    skip = _skip({name: x > 0.5 for name, x in first.params.items()})
    return Tuned(skip=skip, score=first.value, num_trials=len(told))


def _skip(chosen: dict[str, bool]) -> Skip:
    out = [name.split() for name, left_out in chosen.items() if left_out]
    return Skip(
        frozenset(int(layer) for half, layer in out if half == "attention"),
        frozenset(int(layer) for half, layer in out if half == "mlp"),
    )


def _leaves_out(skip: Skip, name: str) -> bool:
    half, layer = name.split()
    return int(layer) in (skip.attention if half == "attention" else skip.mlp)
