"""The network of EAGLE-1, trained otherwise: trees and chains."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

hass_net = random_heads("hass")

ROWS = [
    DrafterRow(drafter="hass", side=hass_net),
    DrafterRow(drafter="hass", label="chain", side=hass_net, options={"width": 1, "sample": "match"}),
]
GROUNDS = [DrafterRow(drafter="hass", target=stutterer, side=taught("hass"))]
