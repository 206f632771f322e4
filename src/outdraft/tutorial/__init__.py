"""The classes of a well-known kind of tutorial on speculative decoding, over this engine: same names, right behaviour.

    from outdraft.tutorial import SpeculativeDecoding
    decoder = SpeculativeDecoding("zoo:target", "zoo:draft", max_speculative_tokens=4)
    print(decoder.generate("It was late when").text, decoder.acceptance_rate)

Models are directories, names, or loaded models of transformers. docs/tutorial.md tells what such tutorials get wrong.
"""

from outdraft.tutorial.adaptive import AdaptiveDraftModel, AdaptiveSpeculativeDecoding
from outdraft.tutorial.analyzer import SpeedupAnalyzer
from outdraft.tutorial.batch import BatchSpeculativeDecoding
from outdraft.tutorial.complexity import SequenceComplexityEstimator
from outdraft.tutorial.decoding import (
    AdvancedSpeculativeDecoding,
    MemoryOptimizedSpeculativeDecoding,
    QuantizedSpeculativeDecoding,
    SpeculativeDecoding,
)
from outdraft.tutorial.trainer import DraftModelTrainer
from outdraft.tutorial.verification import ProbabilisticVerification

__all__ = [
    "AdaptiveDraftModel",
    "AdaptiveSpeculativeDecoding",
    "AdvancedSpeculativeDecoding",
    "BatchSpeculativeDecoding",
    "DraftModelTrainer",
    "MemoryOptimizedSpeculativeDecoding",
    "ProbabilisticVerification",
    "QuantizedSpeculativeDecoding",
    "SequenceComplexityEstimator",
    "SpeculativeDecoding",
    "SpeedupAnalyzer",
]
