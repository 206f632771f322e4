"""A plug-in that asks a draft model in this process, as the actor's clients ask it in another one."""

from dataclasses import dataclass

from outdraft.core.method import CONTRACT, DrafterMethod
from outdraft.server.fleet.remote_drafter import RemoteDrafter


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """Which of `SERVICES`."""

    service: str = "draft"


SERVICES: dict = {}
METHOD = DrafterMethod(
    name="local",
    summary="a test's",
    build=lambda options, port: RemoteDrafter(SERVICES[options.service]),
    options=LocalOptions,
    contract=CONTRACT,
)
