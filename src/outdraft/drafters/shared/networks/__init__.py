"""Networks that draft: how they are loaded, rounded and run, and their memory of each text."""
