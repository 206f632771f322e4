"""The draft of a round as a reply or a chunk gives it, for requests with `return_draft_tree`.

    {"drafted_by": "ngram",
     "nodes": [{"token_id": 7, "text": " the", "parent": null, "status": "pending"},
               {"token_id": 9, "text": " old", "parent": 0, "status": "accepted", "confidence": 0.8}, ...],
     "token_id": 4, "text": " man", "source": "bonus"}

The last three are of the target's own token, which ended the round (core/draft_tree.py).
"""

from typing import Any

from outdraft.codecs.text import TextCodec
from outdraft.core.draft_tree import DraftTree
from outdraft.core.events import Source
from outdraft.server.wire.logprobs import number


def told(tree: DraftTree | None, codec: TextCodec | None) -> dict[str, Any] | None:
    """None where no round has been. Without a codec there are no texts."""
    if tree is None:
        return None
    nodes: list[dict[str, Any]] = []
    for i, (token, parent, status) in enumerate(zip(tree.tokens, tree.parents, tree.statuses, strict=True)):
        node = {**_token(token, codec), "parent": parent if parent >= 0 else None, "status": status}
        if tree.confidence is not None and i:
            node["confidence"] = number(tree.confidence[i])
        nodes.append(node)
    has_draft = len(tree.tokens) > 1
    source = Source.PLAIN if not has_draft else Source.BONUS if tree.is_bonus else Source.RECOVERED
    return {"drafted_by": tree.drafted_by or None, "nodes": nodes, **_token(tree.token, codec), "source": source}


def _token(token: int, codec: TextCodec | None) -> dict[str, Any]:
    return {"token_id": token} if codec is None else {"token_id": token, "text": codec.token_text(token)}
