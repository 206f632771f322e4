"""A request becomes a sequence: everything that can be refused is refused here, before any work is done."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from outdraft.core.registry import find
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.core.verifier import Verifier
from outdraft.decode.asked import RulesByRequest
from outdraft.engine.requests.checks import check_request
from outdraft.engine.requests.longest import longest_guided, most_held
from outdraft.engine.requests.resume import resume
from outdraft.engine.requests.speculative import settle
from outdraft.engine.requests.writable import make_constraint
from outdraft.options.errors import CapabilityError, RequestError
from outdraft.options.speculative import Held, Settled
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.draft_coins import draft_coins


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What an engine holds its requests to."""

    vocab_size: int
    max_len: int  # tokens that the context holds
    ends: frozenset[int]  # the model's end tokens
    is_guided: bool  # whether its target can guide a text
    capacity: int | None  # positions of the whole key/value cache; None: as many as it takes, or not known now
    cuts: bool  # whether a text that wants more than that ends there
    held: Held
    unasked: Settled  # what is in force for a request that says nothing of speculation
    rule: Verifier  # of requests that name none
    rules: RulesByRequest


def make_sequence(
    request: Request, terms: Terms, *, seq_id: int, asked_at: float, find_stop: Callable[[int], bool] | None
) -> Sequence:
    """A checked request as a sequence that holds no memory yet. `asked_at`: seconds, from which its timeout counts.

    `find_stop` gets each emitted token: does the text end with it?
    Raises `RequestError`: empty prompt, prompt too long, ids outside the vocabulary, settings that are not held.
    """
    ids, params = request.prompt_token_ids, request.params
    longest = terms.max_len - check_request(request, terms.vocab_size, terms.max_len, terms.ends)
    if params.guides or request.negative_prompt_token_ids is not None:
        behind = longest_guided(request, terms.vocab_size, terms.max_len, is_possible=terms.is_guided)
        longest = min(longest, behind)
    if terms.capacity is not None:
        longest = min(longest, most_held(request, terms.max_len, terms.capacity, cuts=terms.cuts))
    settled = settled_by(terms, request)
    seq = Sequence(
        id=seq_id,
        request=request,
        tokens=list(ids),
        prompt_len=len(ids),
        max_len=longest,
        seed=secrets.randbits(63) if params.seed is None else params.seed,
        coupled=terms.rule.couples(request) if settled.rule is None else _couples(request, settled.rule, terms.rules),
        prefers_drawn=(terms.held if settled.rule is None else find("verifier", settled.rule)).prefers_drawn,
        settled=settled,
        eos_token_ids=terms.ends,
        coins=verifier_coins,
        draft_coins=draft_coins,
        asked_at=asked_at,
        find_stop=find_stop,
    )
    if params.penalises:
        seq.prompt_ids = request.once.of(("prompt ids", ids), lambda: frozenset(ids))
    if request.constraint is not None or params.structured_outputs is not None:
        seq.constraint = make_constraint(request, terms.vocab_size)
    if request.resume_token_ids:
        resume(seq, terms.vocab_size)
    return seq


def settled_by(terms: Terms, request: Request) -> Settled:
    """What the request's words on speculation mean under these terms."""
    if request.speculative is None and request.num_speculative_tokens is None:
        return terms.unasked
    return settle(request, terms.held)


def _couples(request: Request, rule: str, rules: RulesByRequest) -> bool:
    try:
        return rules.of(rule).couples(request)
    except CapabilityError as error:  # the rule that the request names is not for such requests
        raise RequestError(str(error)) from error
