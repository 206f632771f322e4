"""`SpeedupAnalyzer`: the formulas of `outdraft.analysis.theory` under the tutorial's names."""

from outdraft.analysis.theory import PassCost, best_length, expected_speedup, expected_tokens, flat


class SpeedupAnalyzer:
    """`draft_cost`: time of a draft token over that of a target pass; `pass_cost`: of a target pass by its rows."""

    @staticmethod
    def theoretical_speedup(
        acceptance_rate: float, draft_cost: float, num_tokens: int, *, pass_cost: PassCost = flat
    ) -> float:
        """Over plain decoding, with `num_tokens` drafted a round; 0 gives 1."""
        return expected_speedup(acceptance_rate, num_tokens, draft_cost=draft_cost, pass_cost=pass_cost)

    @staticmethod
    def optimal_candidate_count(
        acceptance_rate: float, draft_cost: float, max_candidates_range: int = 32, *, pass_cost: PassCost = flat
    ) -> int:
        """How many to draft, at most `max_candidates_range`; 0 if plain decoding is best."""
        return best_length(acceptance_rate, draft_cost=draft_cost, pass_cost=pass_cost, longest=max_candidates_range)

    @staticmethod
    def expected_tokens(acceptance_rate: float, num_tokens: int) -> float:
        """Emitted a pass, the extra one included; accepted are one fewer."""
        return expected_tokens(acceptance_rate, num_tokens)
