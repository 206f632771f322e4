"""What `train_eagle3.py` keeps on its device: the buffers of a step, recorded calls, rows and what was said of them."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from lab.smollm2.fused_unrolled import FusedUnrolled
from lab.smollm2.row_loss import row_loss
from lab.smollm2.whole_rows import WholeRows, lay_out, texts_of
from outdraft.drafters.shared.features.fused.net import FusedNet
from outdraft.drafters.shared.learning.unrolled import UnrolledContext
from outdraft.nn.packed import PackedContext
from outdraft.training.lessons import Teacher, places_of

STEPS, DECAY = 5, 0.8  # unrolled, and the weight of each against the one before
ROOM = 18e9  # bytes of the device that a step needs
BEGAN = monotonic()


class Course:
    """A frozen target, heads, and one step's buffers: `rows` rows of `length` + 1 tokens, and what was said of them."""

    def __init__(self, teacher: Teacher, nets: list[FusedNet], rows: int, length: int) -> None:
        device, width = teacher.target.device, teacher.target.config.hidden_size
        self.teacher, self.nets, self.device = teacher, nets, device
        self.unrolled: type[UnrolledContext | FusedUnrolled] = FusedUnrolled
        self.ids = torch.zeros(rows, length + 1, dtype=torch.long, device=device)
        self.documents = torch.zeros_like(self.ids)
        self.answer = torch.zeros(rows, length + 1, dtype=torch.bool, device=device)
        self.taps = nets[0].taps
        told = (rows, len(self.taps) + 1, length, width)
        self.told = torch.zeros(
            told, dtype=teacher.target.dtype, device=device
        )  # taps, and the normed state of row i + 1
        vocab = nets[0].vocab
        whole = teacher.target.head_matrix()
        self.head = whole if vocab is None else whole[vocab.to(device)]
        self.hybrid = False
        for rope in [*teacher.target.ropes.values(), *(net.rope for net in nets)]:
            for dtype in (torch.bfloat16, torch.float32):
                rope.complete(length + 2, dtype, device)

    def take(self, rows: dict[str, Tensor], which: Tensor) -> None:
        """Put these rows into the buffers."""
        for name, buffer in (("ids", self.ids), ("documents", self.documents), ("answer", self.answer)):
            buffer.copy_(rows[name][which])

    @torch.no_grad()
    def teach(self) -> None:
        """What the target says of the rows in the buffers."""
        batch, length = self.ids.shape[0], self.ids.shape[1] - 1
        documents, target = self.documents[:, :-1], self.teacher.target
        positions, read = places_of(documents).flatten(), self.ids[:, :-1].flatten()
        context = PackedContext(batch, length, documents)
        with self.computing():
            out = target.run(target.embed(read, positions), positions, context, taps=self.taps)
            after = target.norm(out.hidden).view(batch, length, -1).roll(-1, 1)
        for i, tap in enumerate(self.taps):
            self.told[:, i].copy_(out.taps[tap].view(batch, length, -1))
        self.told[:, -1].copy_(after)

    def losses(self) -> tuple[list[Tensor], Tensor]:
        """Of each head the mean loss; and [heads, STEPS] the mean acceptance."""
        batch, length = self.ids.shape[0], self.ids.shape[1] - 1
        documents = self.documents[:, :-1]
        places = places_of(documents)
        positions = places.flatten()
        with torch.no_grad():
            said = [self.told[:, i].flatten(0, 1) for i in range(len(self.taps))]
            p = self.told[:, -1].flatten(0, 1) @ self.head.T
            embeds = self.teacher.target.embed(self.ids[:, 1:].flatten(), positions)
            # Pair i guesses token i + 2, which must be of its own text, and of the answer
            whole = (documents[:, :-1] == self.documents[:, 2:]) & (documents[:, :-1] >= 0)
            counts = torch.zeros_like(documents, dtype=torch.bool)
            counts[:, :-1] = whole & self.answer[:, 2:]
            heavy = [(counts & (places >= step)).flatten().float() for step in range(STEPS)]
            total = torch.stack([one.sum() * DECAY**step for step, one in enumerate(heavy)]).sum()
        losses, rates = [], []
        for net in self.nets:
            context = self.unrolled(documents, places)
            true = net.fuse(said)
            f, loss = true, true.new_zeros((), dtype=torch.float32)
            for step, weights in enumerate(heavy):
                g = net.run(embeds, f, positions, context)
                far, accepted = row_loss(net.logits(g), p, weights * DECAY**step, hybrid=self.hybrid)
                loss = loss + far
                rates.append((accepted * weights).sum() / weights.sum().clamp(min=1))
                carried = net.carry(g).view(batch, length, -1)[:, :-1]
                f = torch.cat((true.view(batch, length, -1)[:, :1].to(carried.dtype), carried), 1).flatten(0, 1)
            losses.append(loss / total.clamp(min=1))
        return losses, torch.stack(rates).view(len(self.nets), STEPS).detach()

    def backward(self) -> tuple[Tensor, Tensor]:
        """Gradients of every head; [heads] losses and [heads, STEPS] acceptances."""
        with self.computing():
            losses, rates = self.losses()
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        return torch.stack(losses).detach(), rates

    def computing(self) -> torch.autocast:
        """As the target computes; nothing is kept from one recorded call to the next."""
        wide = self.teacher.target.dtype != torch.bfloat16
        return torch.autocast(self.device.type, torch.bfloat16, enabled=not wide, cache_enabled=False)

    def clear(self) -> None:
        """Drop all gradients."""
        for net in self.nets:
            net.zero_grad(set_to_none=True)

    def require_same(self) -> None:
        """The fused attention must find what the plain one finds on these rows; else the plain one is taken."""
        found = []
        for kind in (UnrolledContext, FusedUnrolled):
            self.unrolled = kind
            self.clear()
            try:
                losses, _ = self.backward()
                grads = [p.grad.flatten() for p in self.nets[0].parameters() if p.grad is not None]
                found.append((float(losses.sum()), torch.cat(grads)))
            except Exception as error:
                say(f"{kind.__name__}: {type(error).__name__}: {str(error)[:300]}")
        self.clear()
        if len(found) == 2:
            far = float((found[0][1] - found[1][1]).norm() / found[0][1].norm())
            say(f"losses {found[0][0]:.5f} and {found[1][0]:.5f}, gradients apart by {far:.4f}")
            if far < 0.05:
                return
        self.unrolled = UnrolledContext
        say("takes the plain attention")


class Recorded:
    """A call as a CUDA graph; where there is none, computed as it comes."""

    def __init__(self, course: Course, call: Callable[[], Any]) -> None:
        self.course, self.call = course, call
        self.graph: Any = None
        if course.device.type != "cuda":
            return
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                course.clear()
                call()
        torch.cuda.current_stream().wait_stream(side)
        course.clear()
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.out = call()
            self.graph = graph
        except Exception as error:
            say(f"no graph: {type(error).__name__}: {str(error)[:600]}")
            torch.cuda.synchronize()

    def __call__(self) -> Any:
        if self.graph is None:
            self.course.clear()
            return self.call()
        self.graph.replay()
        return self.out


class Pool:
    """Rows on the device, and what the target said of each, kept where the device has room for it."""

    def __init__(self, rows: WholeRows, course: Course) -> None:
        device = course.device
        self.rows = {
            name: torch.from_numpy(one).to(device)
            for name, one in (("ids", rows.ids), ("documents", rows.documents), ("answer", rows.answer))
        }
        count, size = len(rows.ids), course.told[0].numel() * course.told.element_size()
        keeps = device.type == "cuda" and torch.cuda.mem_get_info()[0] > count * size + ROOM
        self.told = (
            torch.empty(count, *course.told.shape[1:], dtype=course.told.dtype, device=device) if keeps else None
        )
        say(f"{count} rows, of which {count * size / 1e9:.1f} GB {'are' if keeps else 'would be'} kept")
        self._known = torch.zeros(count, dtype=torch.bool)

    def __len__(self) -> int:
        return len(self._known)

    def give(self, course: Course, which: Tensor, teach: Callable[[], Any]) -> None:
        """These rows and what is said of them, into the buffers."""
        on_device = which.to(course.device)
        course.take(self.rows, on_device)
        if self.told is not None and bool(self._known[which].all()):
            course.told.copy_(self.told[on_device])
            return
        teach()
        if self.told is not None:
            self.told[on_device] = course.told
            self._known[which] = True


class Coming:
    """Texts that another process writes, laid out in a thread when they are there."""

    def __init__(self, stem: Path, length: int) -> None:
        self.rows: WholeRows | None = None
        self.texts = self.tokens = 0
        self._stem, self._length = stem, length
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        done, waits = self._stem.with_name(f"{self._stem.name}.done"), threading.Event()
        while not done.exists():
            waits.wait(1)
        learned, _ = texts_of(sorted(self._stem.parent.glob(f"{self._stem.name}-*.npz.xz")))
        self.texts, self.tokens = len(learned), sum(len(text.ids) for text in learned)
        if learned:
            self.rows = lay_out(learned, self._length, 2)


def pieces(pools: list[Pool], rows: int, generator: torch.Generator) -> list[tuple[Pool, Tensor]]:
    """An epoch: batches of rows of one pool each, in a random order."""
    found: list[tuple[Pool, Tensor]] = []
    for pool in pools:
        some = torch.randperm(len(pool), generator=generator)
        found += [(pool, some[at : at + rows]) for at in range(0, len(some) - rows + 1, rows)]
    if not found:
        found = [(pools[0], torch.arange(rows) % len(pools[0]))]
    mixed = torch.randperm(len(found), generator=generator).tolist()
    return [found[i] for i in mixed]


@torch.no_grad()
def evaluate(course: Course, exam: Pool) -> list[list[float]]:
    """The mean acceptance at each step on held-out answers, of each head."""
    rows, found = len(course.ids), []
    for first in range(0, min(len(exam) - rows + 1, 8 * rows), rows):
        exam.give(course, torch.arange(first, first + rows), course.teach)
        with course.computing():
            found.append(course.losses()[1])
    return [[round(x, 4) for x in one] for one in torch.stack(found).mean(0).tolist()] if found else []


def say(text: str) -> None:
    sys.stdout.write(f"{monotonic() - BEGAN:7.1f} {text}\n")
    sys.stdout.flush()
