"""How far the distribution of a rule's output is from the target's, by enumeration; and drafts that `tables` does not
make."""

from dataclasses import replace

import torch

from tests.helpers.enumerate_distribution import exact_distribution, rounds, target_distribution, total_variation
from tests.helpers.tables import drafts_from

CONTEXT = [0, 1]


def deviation(verifier, pair, parents, *, coupled=False, propose=None, horizon=None, **drafting) -> float:
    """Total variation over the next tokens; `pair`: tables of target and drafter."""
    target, drafter = pair
    horizon = horizon or min(len(parents), 3) + 1
    propose = propose or drafts_from(drafter, parents, **drafting)
    distribution = exact_distribution(verifier, target, propose, CONTEXT, horizon, coupled=coupled)
    return total_variation(distribution, target_distribution(target, CONTEXT, horizon))


def with_confidence(propose, drafter):
    """The same guesses, saying how sure `drafter` was of each."""

    def confident(tokens, coins):
        draft = propose(tokens, coins)
        texts, sure = [list(tokens)], [1.0]
        for token, parent in zip(draft.tokens.tolist()[1:], draft.parents.tolist()[1:], strict=True):
            sure.append(float(drafter(texts[parent])[token]))
            texts.append([*texts[parent], token])
        return replace(draft, confidence=torch.tensor(sure, dtype=torch.float64))

    return confident


def greedy_emitted(verifier, target, propose) -> list[list[int]]:
    """What a greedy request may get in one round; the rule sees the table's own soft distributions."""
    return [outcome.emitted for _, outcome in rounds(verifier, target, propose, CONTEXT, temperature=0)]


def best_tokens(target, count: int) -> list[int]:
    """Plain greedy decoding after the context."""
    text = list(CONTEXT)
    for _ in range(count):
        text.append(int(target(text).argmax()))
    return text[len(CONTEXT) :]
