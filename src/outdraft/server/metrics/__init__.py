"""What the server counts and measures, for Prometheus: `instruments` has the names, `watch` hears the engine."""
