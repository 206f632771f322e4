"""Layer 6: requests over time. `llm.LLM` is the public interface, `loop.Engine` the loop behind it."""
