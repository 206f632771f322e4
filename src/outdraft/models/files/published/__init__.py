"""Quantized checkpoints as other programs publish them: one file a format, and a source that shows Hugging Face's
names."""
