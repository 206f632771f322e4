"""`GET /v1/models`: the names that are served, and what each can do."""

from typing import Any

from fastapi import FastAPI
from starlette.responses import Response

from outdraft.server.errors import ApiError
from outdraft.server.replies import JsonReply
from outdraft.server.service import Service


def add(app: FastAPI, service: Service) -> None:
    """Add these routes to the app."""

    @app.get("/v1/models", tags=["about"], summary="What is served")
    async def models() -> Response:
        return JsonReply(
            {"object": "list", "data": [_told(service, name) for name in service.settings.served_model_name]}
        )

    @app.get("/v1/models/{model:path}", tags=["about"], summary="One of them")
    async def model(model: str) -> Response:
        if model not in service.settings.served_model_name:
            known = ", ".join(service.settings.served_model_name)
            raise ApiError(404, f"the model {model!r:.100} is not served here; served: {known}", code="model_not_found")
        return JsonReply(_told(service, model))


def _told(service: Service, name: str) -> dict[str, Any]:
    config, formats = service.llm.config, service.formats
    return {
        "id": name,
        "object": "model",
        "created": service.started,
        "owned_by": "outdraft",
        "root": config["model"],
        "max_model_len": config["max_model_len"],
        "chat_template": getattr(service.llm.codec, "chat_template", None) is not None,
        "variant": config["variant"],
        "speculative": service.speculation,
        "lossless": service.llm.lossless,
        "tool_call_parser": formats.tools.name if formats.tools else None,
        "reasoning_parser": formats.reasoning.name if formats.reasoning else None,
    }
