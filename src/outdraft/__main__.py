"""`python -m outdraft` is the command `outdraft`."""

from outdraft.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
