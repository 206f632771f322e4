"""A text that was cut off goes on here: on another machine, after the one that wrote it has died.

    prompt  It was late when     written there  the old man     goes on here  came home.

Nothing but the tokens has to come along. The sequence is in the state of one that had to give back its memory: its text
is read again, as a prompt is, and decoding goes on at the same absolute position. Coins are keyed by (seed, absolute
position), and penalties, limits, stop strings and constraints count what was written as output, so the text is the one
that would have been written without the cut: of a greedy request, and of one with a seed.
"""

from collections.abc import Sequence as Seq

from outdraft.core.sequence import Sequence
from outdraft.engine.requests.writable import require_in_vocabulary
from outdraft.options.errors import DecodingError, RequestError
from outdraft.options.foreign import anything_but_an_interrupt
from outdraft.options.params import SamplingParams
from outdraft.options.shown import told


def each_resumed(texts: Seq[Seq[int]], settings: Seq[SamplingParams]) -> list[tuple[tuple[int, ...], ...]]:
    """What the texts of each prompt had written, of one list for all texts, in their order; () where nothing is given.

    Raises `RequestError` where there is not one for each text.
    """
    counts = [one.n for one in settings]
    if len(texts) != sum(counts):
        raise RequestError(
            f"resume_token_ids has {len(texts)} lists, and {sum(counts)} texts are asked for: give one list for each, "
            "[] for a text that had not begun"
        )
    rest = map(tuple, texts)
    each = [tuple(next(rest) for _ in range(count)) for count in counts]
    return [some if any(some) else () for some in each]


def resume(seq: Sequence, vocab_size: int) -> None:
    """Let a new sequence begin where it was cut off. Raises `RequestError` where the text cannot go on there."""
    ids = [token for text in seq.request.resume_token_ids for token in text]
    require_in_vocabulary("resume_token_ids", ids, vocab_size)
    for i, token in enumerate(ids):
        try:
            ended = seq.extend(token)
        except RequestError:  # a form that takes too much work
            raise
        except DecodingError as error:
            raise RequestError(
                f"resume_token_ids has token {token} at {i}, which the form of this request forbids there: give what "
                "was written in the same form"
            ) from error
        except anything_but_an_interrupt() as error:  # of the constraint, which allows no such text
            raise RequestError(
                f"resume_token_ids has token {token} at {i}, and the constraint broke: {told(error)}"
            ) from error
        if ended is not None:
            raise RequestError(
                f"resume_token_ids ends the text with token {i + 1} of {len(ids)} ({ended}): leave out what comes from "
                "there on"
            )
