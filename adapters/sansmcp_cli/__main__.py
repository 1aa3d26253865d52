"""``python -m sansmcp_cli``: the same as the ``sansmcp`` command."""

import sys

from . import main

sys.exit(main())
