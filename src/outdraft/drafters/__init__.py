"""Layer 5: where guesses come from. One file or folder a method; `shared` holds code that several methods use."""
