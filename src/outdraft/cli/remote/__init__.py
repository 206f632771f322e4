"""`--server URL`: a running server in place of an engine of one's own. No model is loaded here."""
