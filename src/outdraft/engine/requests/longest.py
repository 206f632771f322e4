"""How long a text may become: behind a negative prompt too, and within the memory that there is.

Data in: a request, the size of the target and of its memory; data out: tokens, prompt included, or an error before any
work.
"""

from outdraft.core.cache import PAGE
from outdraft.core.request import Request
from outdraft.engine.requests.checks import require_ids
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
