"""One file for each endpoint: `add(app, service)` puts it into the application."""
