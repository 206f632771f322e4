"""Where blocks begin in packed texts, and which rows of the target distribute what their slots guess."""

import torch
from torch import Tensor

from outdraft.core.learner import Lesson
from outdraft.drafters.shared.blocks.sees import Document
from outdraft.nn.packed import document_sizes


def chosen_rows(lesson: Lesson, most: int) -> Tensor:
    """Flat rows, rising, whose next token counts: all in an exam, `most` of each row of texts by chance in training."""
    if lesson.moment is None:
        return lesson.counts.nonzero()[:, 0]
    batch, length = lesson.shape
    found = []
    for row, counts in enumerate(lesson.counts.view(batch, length)):
        places = counts.nonzero()[:, 0]
        if len(places) > most:
            order = torch.randperm(len(places), generator=lesson.moment.generator(row))
            places = places[order[:most].to(places.device)].sort().values
        found.append(places + row * length)
    return torch.cat(found)


def documents_of(lesson: Lesson, anchors: Tensor, *, behind: int = 0) -> list[Document]:
    """The texts in which a block begins; it sees the rows before its anchor, and `behind` more."""
    found, start, done = list[Document](), 0, 0
    for size in document_sizes(lesson.documents[:, : lesson.shape[1]]):
        own = anchors[(anchors >= start) & (anchors < start + size)]
        if len(own):
            blocks = slice(done, done + len(own))
            found.append(Document(rows=slice(start, start + size), blocks=blocks, anchors=own - start + behind))
            done += len(own)
        start += size
    return found


def rows_inside(lesson: Lesson, anchors: Tensor, first: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Rows first..first + count [n, count] of the target, and whether each is of its anchor's text; else it is 0."""
    length = lesson.shape[1]
    documents = lesson.documents[:, :length].flatten()
    rows = first[:, None] + torch.arange(count, device=first.device)
    known = rows.clamp_max(len(documents) - 1)
    inside = (rows == known) & (rows // length == (anchors // length)[:, None])
    inside &= documents[known] == documents[anchors][:, None]
    return torch.where(inside, rows, torch.zeros_like(rows)), inside
