"""`outdraft generate --server URL`: a text continued by a running server, as a stream or as one record."""

from typing import Any

from rich.console import Console

from outdraft.cli.remote.answer import answer, is_ours, served_model
from outdraft.cli.remote.http import RemoteServer
from outdraft.cli.tally import Tally

_PATH = "/v1/completions"


def stream(
    server: RemoteServer, body: dict[str, Any], console: Console, *, colour: bool
) -> tuple[Tally, dict[str, Any]]:
    """Write it as it comes; its figures, and what the server says of its model."""
    model = served_model(server)
    tally = Tally()
    for chunk, painted in answer(server, _PATH, _named(body, model), ours=is_ours(model), colour=colour):
        tally.add(chunk)
        if colour:
            console.print(painted, end="", soft_wrap=True)
        else:
            console.out(chunk.text, end="", highlight=False)
        console.file.flush()
    console.out()
    return tally, model


def as_json(server: RemoteServer, body: dict[str, Any]) -> dict[str, Any]:
    """The record of `outdraft generate --json`; `config` is what the server reports of its model."""
    model = served_model(server)
    more = {"return_token_ids": True} if is_ours(model) else {}
    told = server.post(_PATH, {**_named(body, model), **more})
    choice = told["choices"][0]
    return {
        "text": choice["text"],
        "token_ids": choice.get("token_ids"),
        "sources": choice.get("token_sources"),
        "finish_reason": choice["finish_reason"],
        "variant": model.get("variant"),
        "lossless": model.get("lossless"),
        "metrics": told.get("metrics"),
        "config": model,
    }


def _named(body: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    return {"model": model.get("id"), **{name: value for name, value in body.items() if value is not None}}
