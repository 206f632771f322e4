"""The token ids of a prompt: there are some, the context holds them, and the vocabulary has each of them."""

from collections.abc import Sequence as Seq

from outdraft.options.errors import ContextLengthError, RequestError
from outdraft.options.shown import shown


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
