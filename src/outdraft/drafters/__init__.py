"""Layer 5: where guesses come from. One file or folder a method; `shared` holds what no paper owns."""
