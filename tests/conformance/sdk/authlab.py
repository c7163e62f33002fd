"""mcp-authlab of PyPI, unmodified: its command line.

usage: python authlab.py ARGUMENT...
"""

import sys

from mcp_authlab.cli import main

sys.exit(main(sys.argv[1:]))
