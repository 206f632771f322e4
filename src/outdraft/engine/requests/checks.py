"""What of a request can be refused before any work is done: prompt, positions, ids, and that a token is left to choose.

Each fault is one `RequestError` that names the thing and its value.
"""

from collections.abc import Set

from outdraft.core.request import Request
from outdraft.engine.requests.ids import require_ids
from outdraft.engine.requests.longest import check_positions
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
    shift = 0 if request.prompt_positions is None else check_positions(request, max_len)
    if not (request.params.names_tokens or request.references):
        return shift
    room, once = max_len - shift - len(ids), request.once  # for all its texts: lists may be long
    once.of(("known", vocab_size, request.references), lambda: require_known_tokens(request, vocab_size))
    once.of(("may be written", ends, vocab_size, room), lambda: require_writable(request, ends, vocab_size, room=room))
    return shift
