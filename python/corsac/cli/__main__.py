"""``python -m corsac.cli``: the program without its console script."""

import sys

from corsac.cli import main

sys.exit(main())
