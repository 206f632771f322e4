"""The classes of a well-known kind of tutorial on speculative decoding, over this engine: same names, right behaviour.

    from tutorial import SpeculativeDecoding
    decoder = SpeculativeDecoding("zoo:target", "zoo:draft", max_speculative_tokens=4)
    print(decoder.generate("It was late when").text, decoder.acceptance_rate)

Models are directories, names, or loaded models of transformers. docs/tutorial.md tells what such tutorials get wrong.
"""

from tutorial.adaptive import AdaptiveDraftModel, AdaptiveSpeculativeDecoding
from tutorial.analyzer import SpeedupAnalyzer
from tutorial.batch import BatchSpeculativeDecoding
from tutorial.complexity import SequenceComplexityEstimator
from tutorial.decoding import (
    AdvancedSpeculativeDecoding,
    MemoryOptimizedSpeculativeDecoding,
    QuantizedSpeculativeDecoding,
    SpeculativeDecoding,
)
from tutorial.trainer import DraftModelTrainer
from tutorial.verification import ProbabilisticVerification

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
