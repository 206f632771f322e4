"""Whether a request can be written at all, found before any work: its token ids, what its masks leave, its constraint.

Data in: a request, the ids that end a text and the size of the vocabulary; data out: nothing, or one `RequestError`
that names the setting, its value and the cure.
"""

from collections.abc import Iterable, Set
from math import inf

import torch
from torch import Tensor

from outdraft.core.constraint import Constraint
from outdraft.core.request import Request
from outdraft.options.errors import OutdraftError, RequestError
from outdraft.options.foreign import anything_but_an_interrupt
from outdraft.options.params import SamplingParams
from outdraft.options.shown import shown, told
from outdraft.sampling.masks import bad_words, never_written


def require_known_tokens(request: Request, vocab_size: int) -> None:
    """Every id that the request names is in the vocabulary; texts have been turned into ids."""
    params = request.params
    for name, texts in (("bad_words", params.bad_words), ("forced_prefix", (params.forced_prefix,))):
        for text in texts:
            if isinstance(text, str) and text:
                raise RequestError(f"{name}={shown(text)} needs a tokenizer, and there is none: give token ids")
    named: list[tuple[str, Iterable[int]]] = [
        ("logit_bias", params.logit_bias),
        ("stop_token_ids", params.stop_token_ids),
        ("banned_token_ids", params.banned_token_ids),
        ("allowed_token_ids", params.allowed_token_ids or ()),
        ("forced_prefix", params.prefix_ids),
        *(("bad_words", word) for word in params.bad_word_ids),
        *(("references", text) for text in request.references),
    ]
    for name, chosen in named:
        require_in_vocabulary(name, chosen, vocab_size)


def require_in_vocabulary(name: str, chosen: Iterable[int], vocab_size: int) -> None:
    """Raise `RequestError` for an id that is in no vocabulary of this size. `name`: the field that names it."""
    for i in (min(chosen, default=0), max(chosen, default=0)):
        if not 0 <= i < vocab_size:
            raise RequestError(f"{name} names token {shown(i)}, outside the vocabulary of {vocab_size}")


def require_writable(request: Request, ends: Set[int], vocab_size: int, *, room: int) -> None:
    """The settings leave a token to choose, at the beginning too, and do not forbid what they force.

    `ends`: the ids that end a text. `room`: tokens that the context leaves for the answer.
    """
    params = request.params
    allowed, never = params.allowed_token_ids, never_written(params)

    def leaves_none(also: Set[int] = frozenset()) -> bool:
        return len(never | also) >= vocab_size if allowed is None else set(allowed) <= never | also

    if leaves_none():
        names = _names(params)
        forbid = "together forbid" if " and " in names else "forbids"
        raise RequestError(f"{names} {forbid} all {vocab_size} tokens: leave one that may be written")
    all_ends = ends | set(params.stop_token_ids)
    if params.min_tokens and leaves_none(all_ends):
        raise RequestError(
            f"min_tokens={params.min_tokens} forbids every token that may be written, because each ends the text: set "
            "it to 0, or allow another token"
        )
    _require_prefix(request, never, set(params.stop_token_ids) if params.ignore_eos else all_ends, all_ends, room)


def _names(params: SamplingParams) -> str:
    """The settings that forbid tokens everywhere, as words of a sentence."""
    given = {
        "logit_bias": -inf in params.logit_bias.values(),
        "allowed_token_ids": params.allowed_token_ids is not None,
        "banned_token_ids": bool(params.banned_token_ids),
        "bad_words": any(len(word) == 1 for word in params.bad_word_ids),
    }
    return " and ".join(name for name, is_given in given.items() if is_given)


def _require_prefix(request: Request, never: Set[int], stops: Set[int], all_ends: Set[int], room: int) -> None:
    """Every token of `forced_prefix` may come where it stands. `stops`: what ends this text; `all_ends`: any text."""
    params, words = request.params, bad_words(request)
    prefix = params.prefix_ids
    most = room if params.max_tokens is None else min(room, params.max_tokens)
    if len(prefix) > most:
        raise RequestError(f"forced_prefix has {len(prefix)} tokens, and the answer at most {most}: shorten it")
    allowed = set(params.allowed_token_ids or prefix)
    for i, token in enumerate(prefix):
        if token in never or token not in allowed:
            raise RequestError(
                f"forced_prefix has token {token}, which may not be written ({_names(params)}): take one of them back"
            )
        if i < params.min_tokens and token in all_ends:
            raise RequestError(
                f"forced_prefix has token {token}, which ends a text, before min_tokens={params.min_tokens}: lower it"
            )
        if token in stops and i + 1 < len(prefix):
            raise RequestError(
                f"forced_prefix goes on after token {token}, which ends the text: shorten it, or let the text go on "
                "(ignore_eos=True, or without it in stop_token_ids)"
            )
        if token in words.after(prefix[j] for j in range(i - 1, -1, -1)):
            found = next(word for word in params.bad_word_ids if prefix[max(0, i + 1 - len(word)) : i + 1] == word)
            raise RequestError(f"forced_prefix contains the tokens {list(found)} of bad_words: leave one of them out")


def make_constraint(request: Request, vocab_size: int) -> Constraint | None:
    """A new constraint for one text of the request; None where it brings none.

    Raises `RequestError` for what is no constraint, for one of another vocabulary, where no token may come first, and
    where it forbids the request's own `forced_prefix`.
    """
    if request.constraint is None and request.params.structured_outputs is not None:
        raise RequestError(
            "structured_outputs is compiled where prompts are read, with the model's tokenizer: ask through LLM, or "
            "give the request a constraint (outdraft.codecs.grammar.compile)"
        )
    if request.constraint is None:
        return None
    try:
        constraint = request.constraint()
    except OutdraftError:
        raise
    except anything_but_an_interrupt() as error:  # a stranger's function
        raise RequestError(f"the constraint could not be made: {told(error)}") from error
    if not (hasattr(constraint, "advance") and hasattr(constraint, "allowed")):
        raise RequestError(
            f"constraint made {shown(constraint)}, which has no advance and allowed (outdraft.core.constraint): give a "
            "function without arguments that makes one"
        )
    try:
        allowed = constraint.allowed([])
    except anything_but_an_interrupt() as error:
        raise RequestError(f"the constraint does not say what may come first: {told(error)}") from error
    if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool or allowed.shape != (vocab_size,):
        found = f"{allowed.dtype} of shape {list(allowed.shape)}" if isinstance(allowed, Tensor) else shown(allowed)
        raise RequestError(f"the constraint's allowed([]) is {found}: it must be a tensor [{vocab_size}] of bool")
    if not bool(allowed.any()):
        raise RequestError("the constraint allows no first token, so nothing can be written")
    prefix = request.params.prefix_ids
    for i, token in enumerate(prefix):
        if not constraint.allowed(prefix[:i])[token]:
            raise RequestError(f"forced_prefix has token {token} at {i}, which the constraint forbids there")
    return constraint
