"""What holds weights, memory and a thread belongs to the process that made it: it is neither pickled nor copied."""

from typing import Never

from outdraft.options.errors import CapabilityError


class OneProcess:
    """A base that says so, with the cure, in place of some error of its parts."""

    def __reduce__(self) -> Never:
        """Raises `CapabilityError`, also for `copy.copy` and `copy.deepcopy`."""
        raise CapabilityError(
            f"{type(self).__name__} holds weights and a thread of this process, and is neither pickled nor copied: "
            "make an LLM in the other process, with the same arguments; in this one, with_drafter makes another over "
            "the same weights"
        )
