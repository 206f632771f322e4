"""Each field of each request, small and large: the small one is taken, the large one taken or refused in one sentence.

The server takes bodies of 64 KiB here, so that all of them are asked within a minute. What neighbours feel is measured
by `python -m lab.abuse.doubling`.
"""

import asyncio
import re
from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi")
from serving import serving

from lab.abuse.ask import Reply, ask
from lab.abuse.model import write_model
from lab.abuse.subjects import Subject, subjects
from outdraft import LLM
from outdraft.server.app import make_app

BODY = 64 << 10
LARGE = re.compile("length|count|parts|choices|texts|tokens|branches$")  # ways that fill a body
BEYOND = 1 << 17  # of these: more than a body may hold
FAR = 1 << 7  # of what is deep or repeated: what that costs is measured elsewhere
UNKNOWN = "count of unknown names"
# What is refused in every size, because there is no such thing here; a field whose limit is below its smallest size.
NEVER_TAKEN = {
    "CompletionRequest.model",
    "ChatRequest.chat_template",
    "SpeculativeFields.method",
    "SpeculativeFields.verifier",
    "SpeculativeFields.policy",
    "/v1/models/{model}?model",
    "NamedFunction.name",
    "OtherPart.type",
}
# Numbers without a limit of their own: no work grows with them, or the context ends it.
UNLIMITED = {
    "CompletionRequest.top_k",
    "CompletionRequest.timeout",
    "CompletionRequest.stream_interval",
    "ToolCall.index",
    "CompletionRequest.max_tokens",
    "ChatRequest.max_tokens",
    "ChatRequest.max_completion_tokens",
    "ResponsesRequest.max_output_tokens",
    "TokenSampling.max_tokens",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Subject], str]]:
    model = write_model("zoo:target", tmp_path_factory.mktemp("limits") / "model")
    with (
        LLM(str(model), enable_prefix_caching=True) as llm,
        serving(llm, tool_call_parser="hermes", max_body_bytes=BODY, kv_events=True, max_tokens=8) as (
            address,
            service,
        ),
    ):
        yield [one for one in subjects(make_app(service).openapi()) if not one.same_as], address


def replies(address: str, asked: list[tuple[Subject, int]]) -> Iterator[tuple[Subject, Reply]]:
    async def all_of_them() -> list[Reply]:
        return [await ask(address, subject.make(size), 60.0) for subject, size in asked]

    yield from zip((subject for subject, _ in asked), asyncio.run(all_of_them()), strict=True)


def test_small_ones_are_taken(served):
    """Else what grows would be refused for another reason than its size."""
    found, address = served
    refused = []
    for subject, reply in replies(address, [(one, size) for one in found for size in first(one)]):
        is_meant = subject.name in NEVER_TAKEN or subject.how in (UNKNOWN, "its values", "value, a power of 2")
        if reply.status != 200 and (not is_meant or reply.faults):
            refused.append(f"{subject.name}, {subject.how}: {reply.status} {reply.said} {reply.faults}")
    assert not refused, "\n".join(refused)


def first(subject: Subject) -> tuple[int, ...]:
    """The smallest size; all of finitely many values."""
    return subject.sizes if subject.how == "its values" else subject.sizes[:1]


def test_large_ones_are_refused_in_one_sentence(served):
    found, address = served
    asked, wrong = [(one, large(one)) for one in found if one.how != "its values" and not one.is_pair], []
    for subject, reply in replies(address, asked):
        told = f"{subject.name}, {subject.how}: {reply.status} {reply.said} {reply.faults}"
        is_taken = reply.status == 200 and large(subject) != FAR and subject.name not in UNLIMITED
        if reply.faults or reply.is_late or is_taken:
            wrong.append(told)
    assert not wrong, "\n".join(wrong)


def large(subject: Subject) -> int:
    if subject.how.startswith("value") and not subject.name.startswith("/"):
        return subject.sizes[-1]
    most = BEYOND if LARGE.match(subject.how) and "asks for" not in subject.how else FAR
    return max(size for size in subject.sizes if size <= most)
