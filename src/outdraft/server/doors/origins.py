"""Web pages of other origins may ask only where the operator names them."""

from collections.abc import Sequence as Seq

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware


def add_origins(app: FastAPI, origins: Seq[str]) -> None:
    """`origins`: such as https://example.org, or * for all."""
    if origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"], allow_headers=["*"]
        )
