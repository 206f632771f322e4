"""Look-ahead embeddings behind every guess, and behind the last one alone."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

places = random_heads("parallel_sampling", num_places=3)

ROWS = [
    DrafterRow(drafter="parallel_sampling", side=places, late=True),
    DrafterRow(drafter="parallel_sampling", label="last", side=places, options={"everywhere": False}, late=True),
]
GROUNDS = [DrafterRow(drafter="parallel_sampling", target=stutterer, side=taught("parallel_sampling"), late=True)]
