"""Models and heads as files: config.json and safetensors, GGUF, published quantizations."""
