"""``python -m corsac``: the command line."""

import sys

from corsac.cli import main

if __name__ == "__main__":
    sys.exit(main())
