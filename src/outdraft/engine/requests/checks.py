"""What of a request can be refused before any work is done: prompt, positions, ids, and that a token is left to choose.

Each fault is one `RequestError` that names the thing and its value.
"""

from collections.abc import Set

from outdraft.core.request import Request
from outdraft.engine.requests.guidance import most_rows
from outdraft.engine.requests.ids import require_ids
from outdraft.engine.requests.writable import require_known_tokens, require_writable
from outdraft.options.errors import RequestError
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
    shift = 0 if request.prompt_positions is None else _check_positions(request, max_len)
    if not (request.params.names_tokens or request.references):
        return shift
    room, once = max_len - shift - len(ids), request.once  # for all its texts: lists may be long
    once.of(("known", vocab_size, request.references), lambda: require_known_tokens(request, vocab_size))
    once.of(("may be written", ends, vocab_size, room), lambda: require_writable(request, ends, vocab_size, room=room))
    return shift


def most_held(request: Request, max_len: int, capacity: int, *, cuts: bool = False) -> int:
    """The most tokens of its text that memory can hold. Raises `RequestError` where this request can never fit.

    `capacity`: positions of the whole key/value cache. `cuts`: it was not chosen, so a text that wants more ends where
    memory does, if its prompt fits.
    """
    most = most_rows(request, capacity)
    num_prompt, wanted = len(request.prompt_token_ids), None if cuts else request.params.max_tokens
    if min(num_prompt + (wanted or 1), max_len) > most:
        asked = f"{num_prompt} tokens of prompt" + (f" and max_tokens={wanted}" if wanted else "")
        twice = ", and a guided text stands there twice" if request.params.guides else ""
        raise RequestError(
            f"{asked} never fit: the key/value cache holds {capacity} tokens in all{twice}; ask for less, or give more "
            "kv_cache_memory"
        )
    return most


def _check_positions(request: Request, max_len: int) -> int:
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
