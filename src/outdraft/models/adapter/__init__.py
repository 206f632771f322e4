"""Any causal language model of `transformers` as a target: their layers, our attention and our cache.

choose      whether a directory goes this way
refuse      what cannot, by config.json or by their class
library     `transformers` itself, imported when it is needed
plan        config.json to their class, before weights are read
load        a directory to a `TransformersNetwork`
attention   the function that their layers call in place of their own
anatomy     what one pass showed of the model: where its layers and its norm are, and the shape of its heads
network     the model as the engine sees it
exact_rows  rows that keep their bits, whatever stands beside them
check       the loaded weights: a tree against its paths, rows together against rows alone
"""
