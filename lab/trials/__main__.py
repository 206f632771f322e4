"""Arms of an experiment: ways of training a draft for one target, on the same texts in the same order, and their worth.

python -m lab.trials FILE.toml --out DIR            runs what is lacking, and prints the tables
python -m lab.trials FILE.toml --out DIR --table    prints them from what is there
python -m lab.trials FILE.toml --out DIR --forecast says what is lacking, and how long it takes
    --plot PICTURE.png       draws what drafts were worth while they learned; --only ARM: of these arms

target = "..."  data = [...]  tune = [...]  test = [...]  tokens = 500_000
rates = [0.5, 1, 2]          multiply lr and muon_lr: every arm is tuned over the same ones
seeds = [0, 1, 2]
promises = 512               texts of which each draft promises something, for `outdraft train check`
tuned_on = 1                 all rates are tried with the first seed, the others take the best; 0: with every seed
[loop]                       of all arms
[arms.NAME]                  kind, options, loss, ... of a plan
[[claims]]                   says, better, worse, measure
"""

import argparse
import sys
from collections.abc import Sequence as Seq
from pathlib import Path

from lab.trials.forecast import forecast
from lab.trials.plot import plot_trial
from lab.trials.table import tables
from lab.trials.trial import RECORD, Trial, claims_of, lacking, read_runs, read_trial, require_same_recipe, run_lacking
from outdraft.options.errors import ConfigError, OutdraftError
from outdraft.options.near_miss import near_miss


def _arms(trial: Trial, only: Seq[str]) -> list[str]:
    """Those that are asked for, or all. Raises `ConfigError` for one that the file does not have."""
    for name in only:
        if name not in trial.arms:
            raise ConfigError(
                f"--only {name} is no arm{near_miss(name, trial.arms)}; there are: {', '.join(trial.arms)}"
            )
    return list(only or trial.arms)


def main(words: list[str] | None = None) -> int:
    """Run what is lacking, arm by arm and seed by seed; then the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[], help="an arm; may be repeated")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--forecast", action="store_true", help="run nothing: what is lacking, and its seconds")
    parser.add_argument("--plot", type=Path, help="a picture of tokens a pass by tokens learned from")
    asked = parser.parse_args(words)
    try:
        trial = read_trial(asked.file)
        record = asked.out / RECORD
        arms = _arms(trial, asked.only)
        require_same_recipe(trial, arms, record, read_runs(record))
        if asked.forecast:
            runs = read_runs(record)
            tokens = {name: arm.get("tokens", trial.tokens) for name, arm in trial.arms.items()}
            sys.stdout.write(forecast(lacking(trial, arms, runs), runs, tokens))
            return 0
        if not asked.table:
            run_lacking(trial, arms, asked.out, sys.stderr.write)
        runs = read_runs(record)
        sys.stdout.write(tables(runs, claims_of(trial)))
        if asked.plot is not None:
            plot_trial(asked.plot, runs, arms, asked.out, depth=trial.depth, target=trial.target)
    except OutdraftError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
