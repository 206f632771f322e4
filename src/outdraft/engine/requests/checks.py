"""What of a request can be refused before any work is done: prompt, positions, ids, and that a token is left to choose.

Each fault is one `RequestError` that names the thing and its value.
"""

from collections.abc import Sequence as Seq
from collections.abc import Set

from outdraft.core.request import Request
from outdraft.engine.requests.writable import require_known_tokens, require_writable
from outdraft.options.errors import ContextLengthError, RequestError
from outdraft.options.shown import shown


def check_request(request: Request, vocab_size: int, max_len: int, ends: Set[int]) -> int:
    """Returns by how much positions run ahead of indices at the prompt's end: the context ends so much earlier.

    `max_len`: tokens that the context holds. `ends`: the model's end tokens.
    """
    ids = request.prompt_token_ids
    require_ids(
        ids, of="prompt", if_empty=" (a start token, if the model has one)", vocab_size=vocab_size, max_len=max_len
    )
    if request.timeout is not None and not request.timeout > 0:
        raise RequestError(f"timeout={shown(request.timeout)} must be more than 0 seconds; None is no limit")
    shift = 0 if request.prompt_positions is None else check_positions(request, max_len)
    if not (request.params.names_tokens or request.references):
        return shift
    room, once = max_len - shift - len(ids), request.once  # for all its texts: lists may be long
    once.of(("known", vocab_size, request.references), lambda: require_known_tokens(request, vocab_size))
    once.of(("may be written", ends, vocab_size, room), lambda: require_writable(request, ends, vocab_size, room=room))
    return shift


def require_ids(ids: Seq[int], *, of: str, if_empty: str, vocab_size: int, max_len: int) -> None:
    """Raises `RequestError`, and for too many ids `ContextLengthError`.

    `of`: what the ids are, "prompt" say; `if_empty`: what else may be given then.
    """
    if not ids:
        raise RequestError(f"the {of} is empty: give at least one token{if_empty}")
    if len(ids) >= max_len:
        raise ContextLengthError(
            f"the {of} has {len(ids)} tokens, the context holds {max_len} and at least one must be left for the "
            f"answer: shorten the {of}"
        )
    if not 0 <= min(ids) <= max(ids) < vocab_size:
        bad = next(i for i in ids if not 0 <= i < vocab_size)
        raise RequestError(f"the {of} has token id {shown(bad)}, outside the vocabulary of {vocab_size}")


def check_positions(request: Request, max_len: int) -> int:
    """By how much its own positions run ahead of indices at the prompt's end; raises `RequestError` for bad ones."""
    ids, given = request.prompt_token_ids, request.prompt_positions or ()
    if not (len(given) == len(ids) and 0 <= min(given) <= given[-1] == max(given)):
        raise RequestError(
            f"prompt_positions={shown(given)} must be {len(ids)} positions, one for each token of the prompt, "
            "from 0 on, the last one the largest"
        )
    shift = max(0, given[-1] + 1 - len(ids))  # the context ends where positions do
    if len(ids) + shift >= max_len:
        raise RequestError(f"prompt_positions end at {given[-1]}, the context holds {max_len}")
    return shift
