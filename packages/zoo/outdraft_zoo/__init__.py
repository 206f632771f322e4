"""Trained heads for outdraft's `zoo:target`. A folder NAME beside this file, with its config.json, is `zoo:NAME`."""
