"""`python -m postroom.worker` is the `postroom` command."""

import sys

from postroom.worker.cli import main

if __name__ == "__main__":
    sys.exit(main())
