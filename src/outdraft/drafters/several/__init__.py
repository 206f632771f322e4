"""Several drafters behind one: the policy says each round which of them guesses for which sequence."""

from outdraft.core.registry import Method
from outdraft.drafters.several.drafter import SeveralOptions, arms, build, describe

METHOD = Method(
    name="several",
    kind="drafter",
    summary="several drafters side by side; the policy chooses among them every round",
    build=build,
    options=SeveralOptions,
    describe=describe,
    arms=arms,
    shapes=("chain", "tree"),
)
