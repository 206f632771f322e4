"""How a drafter takes other weights while requests are decoded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Adoption:
    """How a drafter takes other weights between two steps, while requests are decoded (`engine/between_steps.py`).

    A text does not depend on its guesses, so running requests keep theirs; `q` of a guess stays what it was drawn from.
    `take` puts weights, by name or of a directory, in the place of those held; where it raises, these stay in force.
    """

    take: Callable[[Any], None]
    version: int = 0  # how often they have been replaced
    of: Callable[[int], int] | None = None  # which version drafts for a sequence; None: always the newest
    prepare: Callable[[Any], Any] | None = None  # in any thread, what `take` then gets: it reads files, and may last
    take_for: Callable[[Any, str], None] | None = None  # `take` for requests of one cache salt alone

    def adopt(self, weights: Any, salt: str | None = None) -> int:
        """Replace the weights; returns the version that guesses of texts that begin from now on have.

        `weights`: what `prepare` gave, where there is such a step. Raises `ValueError` for a salt where all requests
        share one network.
        """
        if salt is None:
            self.take(weights)
        elif self.take_for is None:
            raise ValueError("all requests share the weights of this drafter")
        else:
            self.take_for(weights, salt)
        self.version += 1
        return self.version
