"""Drafter and target as separate actors: the draft model in one of its own, perhaps on another machine.

    actor = start_draft_actor("drafts", {"model": "zoo:draft", "drafter": "none"})
    llm = LLM("zoo:target", drafter={"name": "outdraft.server.fleet.on_ray.drafter:METHOD", "actor": "drafts"})

It pays where a guess is worth more than the way to it: a call of Ray's takes about a millisecond.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import ray

from outdraft.core.method import CONTRACT, DrafterMethod
from outdraft.engine.llm import LLM
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.server.fleet.draft_service import DraftAsk, DraftService
from outdraft.server.fleet.remote_drafter import RemoteDrafter


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteDraftOptions:
    """Where the draft model is."""

    actor: str = "drafts"  # the name of the actor
    timeout: float = 30.0  # seconds that a guess may take; then the request goes on with plain decoding


class DraftActor:
    """`DraftService` in a process of its own. `engine`: the arguments of `LLM`, of the draft model."""

    def __init__(self, engine: Mapping[str, Any], ahead: int) -> None:
        self._service = DraftService(LLM(**engine), ahead=ahead)

    def vocab_size(self) -> int:
        return self._service.vocab_size

    def num_opened(self) -> int:
        return self._service.num_opened

    def draft(self, asks: Seq[DraftAsk]) -> list[list[int]]:
        return self._service.draft(asks)

    def end(self, text_ids: Seq[str]) -> None:
        self._service.end(text_ids)


def start_draft_actor(name: str, engine: Mapping[str, Any], *, cpus: float = 1, ahead: int = 3) -> Any:
    """Start the actor, which lives as long as its handle. `ahead`: how many times a guess's depth it drafts on."""
    actor = ray.remote(DraftActor).options(name=name, num_cpus=cpus).remote({**engine}, ahead)
    ray.get(actor.vocab_size.remote())  # it is there, or has said why not
    return actor


class _Remote:
    """The calls of `Drafting`, as calls of the actor's."""

    def __init__(self, options: RemoteDraftOptions) -> None:
        self._options = options
        try:
            self._actor = ray.get_actor(options.actor)
        except ValueError as error:
            raise ConfigError(
                f"actor={options.actor!r} is the name of no actor here: start one with start_draft_actor"
            ) from error
        self.vocab_size: int = ray.get(self._actor.vocab_size.remote(), timeout=options.timeout)

    def draft(self, asks: Seq[DraftAsk]) -> list[list[int]]:
        found: list[list[int]] = ray.get(self._actor.draft.remote(asks), timeout=self._options.timeout)
        return found

    def end(self, text_ids: Seq[str]) -> None:
        self._actor.end.remote(text_ids)


def build(options: RemoteDraftOptions, port: TargetPort) -> RemoteDrafter:
    """Raises `CapabilityError` for a draft model of another vocabulary."""
    remote = _Remote(options)
    if remote.vocab_size != port.facts.vocab_size:
        raise CapabilityError(
            f"the draft model of actor {options.actor!r} has {remote.vocab_size} tokens, and the target "
            f"{port.facts.vocab_size}: take a draft model of the target's vocabulary"
        )
    return RemoteDrafter(remote)


METHOD = DrafterMethod(
    name="remote_draft",
    summary="a draft model in an actor of its own writes ahead",
    build=build,
    options=RemoteDraftOptions,
    contract=CONTRACT,
)
