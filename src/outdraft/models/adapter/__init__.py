"""Any causal language model of `transformers` as a target: their layers, our attention and our cache.

choose     whether a directory goes this way
refuse     what cannot, by config.json, before weights are read
library    `transformers` itself, imported when it is needed
load       a directory to a `TransformersNetwork`
attention  the function that their layers call in place of their own
anatomy    what one pass showed of the model: where its layers, its norm and its heads are
check      the loaded weights: a tree against its paths, rows together against rows alone
"""
