"""A request's guidance, checked before any work.

Data in: a request and the size of the target; data out: how long the text may become, or an error.
"""

from outdraft.core.cache import PAGE
from outdraft.core.request import Request
from outdraft.engine.requests.ids import require_ids
from outdraft.options.errors import CapabilityError, RequestError


def longest_guided(request: Request, vocab_size: int, max_len: int, *, is_possible: bool) -> int:
    """How many tokens, prompt included, the context leaves: the output must fit behind the negative prompt too.

    `is_possible`: whether the target guides (`decode/guidance.py`). Raises `RequestError` for a negative prompt that is
    not used, empty, too long or outside the vocabulary, and for a prompt of vectors; `CapabilityError` for a target
    that cannot.
    """
    params, given = request.params, request.negative_prompt_token_ids
    if not params.guides:
        if given is not None:
            raise RequestError(
                "negative_prompt: it is for guidance, which guidance_scale=1 turns off; set guidance_scale=1.5, say, "
                "or leave it out"
            )
        return max_len
    asked = f"guidance_scale={params.guidance_scale:g}"
    if not is_possible:
        raise CapabilityError(f"{asked}: this engine's target does not guide; put GuidedTarget around it")
    if request.prompt_embeds is not None:
        raise RequestError(f"{asked} cannot be had with prompt_embeds: give a prompt of tokens, or leave it out")
    ids = request.negative_ids
    require_ids(ids, of="negative prompt", if_empty=", or leave it out", vocab_size=vocab_size, max_len=max_len)
    return max_len - len(ids) + len(request.prompt_token_ids)


def most_rows(request: Request, capacity: int) -> int:
    """The most tokens that a text may have where a cache of `capacity` rows holds it; a guided text stands there twice.

    No cache holds the last token. Each of the two texts fills its pages but for the last one.
    """
    if not request.params.guides:
        return capacity + 1
    ahead = len(request.prompt_token_ids) - len(request.negative_ids)
    return max(0, capacity - PAGE + ahead) // 2 + 1
