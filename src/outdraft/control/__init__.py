"""Layer 5: how much to guess. One file a policy; none knows another."""
