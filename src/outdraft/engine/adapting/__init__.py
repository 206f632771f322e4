"""What joins an engine to a draft that keeps learning (`LLM(..., adapt=)`); `adapt/` knows the draft alone."""
