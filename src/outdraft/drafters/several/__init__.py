"""Several drafters behind one: the policy says each round which of them guesses for which sequence."""

from outdraft.core.method import DrafterMethod
from outdraft.drafters.several.drafter import SeveralOptions, arms, build, describe
from outdraft.drafters.shared.composed.nested import shape_of_nested

METHOD = DrafterMethod(
    name="several",
    summary="several drafters side by side; the policy chooses among them every round",
    build=build,
    options=SeveralOptions,
    describe=describe,
    arms=arms,
    shape_of=lambda options: shape_of_nested(options.drafters),
)
