"""Layer 6: requests over time. `llm.LLM` is the front door, `loop.Engine` the loop behind it."""
