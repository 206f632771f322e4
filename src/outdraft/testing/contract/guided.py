"""The same ids as plain decoding with classifier-free guidance, in a batch whose other requests are not guided."""

from collections.abc import Sequence as Seq
from dataclasses import replace

from torch import Tensor

from outdraft.core.request import Request
from outdraft.decode import reference
from outdraft.decode.guidance import GuidedTarget
from outdraft.engine.loop import Engine
from outdraft.options.params import SamplingParams
from outdraft.testing.contract.ground import GREEDY, PENALISED_SEEDED, SEEDED, agrees, requests
from outdraft.testing.subject import Subject, run
from outdraft.verify.auto import Auto

ASKED: tuple[tuple[float, tuple[int, ...] | None], ...] = (  # scale, negative prompt; one for each prompt
    (1.7, None),
    (2.5, (8, 3, 8, 3, 8, 3, 8)),
    (1.0, None),
    (0.6, (5,)),
    (1.4, tuple(range(20, 50))),
)


def guided_requests_write_the_same(
    subject: Subject, *, depths: Seq[int] = (2, 5), settings: Seq[SamplingParams] = (GREEDY, SEEDED, PENALISED_SEEDED)
) -> None:
    """Greedy and seeded ids are those of two passes without a cache for each token, one with either prompt."""
    for params in settings:
        batch = [
            replace(request, params=replace(params, guidance_scale=scale), negative_prompt_token_ids=negative)
            for request, (scale, negative) in zip(requests(params), ASKED, strict=True)
        ]
        wanted = [two_passes(subject, request) for request in batch]
        for depth in depths:
            for outcome, ids in zip(
                run(guided(subject.engine(depth=depth, verifier=Auto())), batch), wanted, strict=True
            ):
                agrees(subject, outcome, ids, f"guided by {outcome.seq.request.params.guidance_scale:g}, k={depth}")


def guided(engine: Engine) -> Engine:
    """The engine, whose target guides: each call of the wrapper on what it wraps is audited."""
    engine.parts = replace(engine.parts, target=GuidedTarget(engine.parts.target))
    return engine


def two_passes(subject: Subject, request: Request) -> list[int]:
    """Plain decoding of a request that may be guided, with the formula written out."""
    scale, prompt_len = request.params.guidance_scale, len(request.prompt_token_ids)
    negative = request.negative_prompt_token_ids or request.prompt_token_ids[-1:]

    def next_logits(tokens: list[int]) -> Tensor:
        with_prompt = subject.next_logits(tokens)
        if scale == 1:
            return with_prompt
        without = subject.next_logits([*negative, *tokens[prompt_len:]])
        with_prompt, without = with_prompt - with_prompt.logsumexp(-1), without - without.logsumexp(-1)
        return scale * with_prompt + (1 - scale) * without

    return reference.decode(next_logits, guided(subject.engine()).prepare(request))
