"""The choices of a policy: the drafters (arms) among which it may choose, where a drafter holds several."""

from outdraft.core.drafter import Drafter, arm_of
from outdraft.core.policy import Arm
from outdraft.core.registry import AnyDrafter


def arms_of(method: AnyDrafter, drafter: Drafter) -> tuple[Arm, ...]:
    """The drafters that it holds, or itself alone."""
    return method.arms(drafter) or (arm_of(drafter, method.name),)
