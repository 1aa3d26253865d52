"""``python -m sansmcp_cli``: the same as the ``sansmcp`` command."""

import sys

from ._main import main

sys.exit(main())
