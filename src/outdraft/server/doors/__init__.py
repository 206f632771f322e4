"""What stands before every endpoint: who may ask, how much, how often, and from which web page."""
