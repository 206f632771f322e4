"""Draft & Verify: the target drafts with a fixed set of its sublayers left out, over its own cache.

Zhang et al., "Draft & verify: lossless large language model acceleration via self-speculative decoding", 2023,
https://arxiv.org/abs/2309.08168. Which sublayers is found once, offline (`tune`): by Bayesian optimisation over one
variable a sublayer, left out where it is above one half. The optimiser is Optuna's Gaussian process (the extra
`outdraft[tune]`); every trial is kept in a journal, so that a search that was interrupted goes on. Data in: sequences;
data out: chains with the distributions they were drawn from (none at temperature 0). No state of its own.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

from outdraft.core.draft import Draft
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.skip import Skip
from outdraft.core.target import Needs
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.networks.draft_network import target_network
from outdraft.drafters.shared.own_layers.own_chain import grow_own_chains
from outdraft.drafters.shared.own_layers.skip_sets import alternating, load_skip
from outdraft.drafters.shared.plain import PlainDrafter
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path

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


_UNTUNED = 0.45  # of the inner sublayers, where no set is named


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftVerifyOptions(DrawOptions):
    """Which sublayers are left out. Raises `ConfigError` naming what is out of range."""

    skip: str = ""  # a file that `outdraft tune-skip` wrote, which names the sublayers to leave out
    # without a file: the layers, counted from 0, whose attention is left out; with neither, every second layer is
    skip_attention: tuple[int, ...] | None = None
    # without a file: the layers, counted from 0, whose feed-forward part is left out; with neither, every second
    # layer is
    skip_mlp: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        if self.skip and (self.skip_attention is not None or self.skip_mlp is not None):
            raise ConfigError(f"skip={self.skip!r} and layer numbers are given: leave one out")


class DraftVerifyDrafter(PlainDrafter):
    """The same sublayers for every sequence and round."""

    needs = Needs(layer_subset=True)

    def __init__(self, options: DraftVerifyOptions, port: TargetPort, skip: Skip) -> None:
        self.skip = skip
        self._options = options
        self._port = port
        self._network = target_network(port)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A chain by what is left of the target."""
        skips = [self.skip] * len(seqs)
        return grow_own_chains(seqs, budgets, self._network, self._port.rows.tentative, self._options, skips)


def build(options: DraftVerifyOptions, port: TargetPort) -> DraftVerifyDrafter:
    """Read the skip set and check that it is this target's."""
    if options.skip:
        skip = load_skip(user_path(options.skip), port.facts.num_layers)
    elif options.skip_attention is None and options.skip_mlp is None:
        skip = alternating(port.facts.num_layers, _UNTUNED)
    else:
        skip = Skip(frozenset(options.skip_attention or ()), frozenset(options.skip_mlp or ()))
        skip.check(port.facts.num_layers, "skip_attention or skip_mlp")
    return DraftVerifyDrafter(options, port, skip)


METHOD = DrafterMethod(
    name="draft_verify",
    summary="the target without some of its sublayers, which a search has chosen once",
    build=build,
    options=DraftVerifyOptions,
    paper=arxiv(
        "2309.08168", "Draft & verify: lossless large language model acceleration via self-speculative decoding"
    ),
    describe=lambda drafter: {"skip_attention": sorted(drafter.skip.attention), "skip_mlp": sorted(drafter.skip.mlp)},
)
