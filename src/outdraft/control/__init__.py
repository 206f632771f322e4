"""Layer 5: how much to guess. One file a policy; no policy imports another."""
