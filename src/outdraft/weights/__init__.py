"""Where weights come from: a directory or the Hugging Face cache, lazily read, checked to the last tensor."""
