"""How many requests the gate of a draft that learns needs, for gains of known size.

    python -m lab.gate_power [--candidates 300]

Differences are normal, one domain, depth 4. Data out: for each gain and number of the try, the requests within which
half of the candidates pass, and 95 %.
"""

import argparse
import sys

import numpy as np

from outdraft.adapt.gate import Gate, GateOptions

_GAINS = ((0.05, 0.1), (0.1, 0.2), (0.2, 0.3), (0.3, 0.4))  # tokens a round, and their standard deviation
_MOST = 2000


def needed(gain: float, deviation: float, tries: int, dice: np.random.Generator) -> int:
    """Requests until a candidate passes; more than there may be, where it does not."""
    gate = Gate(GateOptions(most=_MOST), 4, tries)
    while gate.outcome == "undecided":
        gate.add("one", 2.0, 2.0 + float(np.clip(dice.normal(gain, deviation), -2, 2)))
    return int(gate.verdict.reason.split()[2]) if gate.outcome == "passed" else _MOST + 1


def main() -> int:
    """Simulate, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--candidates", type=int, default=300)
    asked, dice = parser.parse_args(), np.random.default_rng(0)
    for gain, deviation in _GAINS:
        for tries in (1, 2, 5):
            found = [needed(gain, deviation, tries, dice) for _ in range(asked.candidates)]
            half, most = (int(np.quantile(found, share)) for share in (0.5, 0.95))
            sys.stdout.write(f"gain {gain:g} ({deviation:g}), try {tries}: half within {half}, 95 % within {most}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
