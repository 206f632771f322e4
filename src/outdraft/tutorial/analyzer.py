"""`SpeedupAnalyzer`: the formulas of `outdraft.analysis.theory` for one machine's costs."""

from dataclasses import dataclass
from pathlib import Path

from outdraft.analysis.predict import Prediction, predict
from outdraft.analysis.records import read_records
from outdraft.analysis.theory import PassCost, best_length, expected_speedup, expected_tokens, flat


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupAnalyzer:
    """`draft_cost`: time of a draft token over that of a target pass; `pass_cost`: of a target pass by its rows."""

    draft_cost: float = 0.1
    pass_cost: PassCost = flat

    def theoretical_speedup(self, acceptance_rate: float, num_tokens: int) -> float:
        """Over plain decoding, with `num_tokens` drafted a round; 0 gives 1."""
        return expected_speedup(acceptance_rate, num_tokens, draft_cost=self.draft_cost, pass_cost=self.pass_cost)

    def expected_tokens(self, acceptance_rate: float, num_tokens: int) -> float:
        """Emitted a pass, the extra one included; accepted are one fewer."""
        return expected_tokens(acceptance_rate, num_tokens)

    def optimal_length(self, acceptance_rate: float, longest: int = 32) -> int:
        """How many to draft; 0 if plain decoding is best."""
        return best_length(acceptance_rate, draft_cost=self.draft_cost, pass_cost=self.pass_cost, longest=longest)

    @staticmethod
    def of_record(path: str | Path) -> list[Prediction]:
        """Measured beside predicted, from a file of `outdraft bench`."""
        return predict(read_records(Path(path)))
