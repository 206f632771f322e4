"""Parts of a decoder: linears, norms, rotary positions, activations, and the contexts in which attention looks back."""
