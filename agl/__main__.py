"""``python -m agl`` is ``agl``."""

from agl.cli.app import main

if __name__ == "__main__":
    main()
