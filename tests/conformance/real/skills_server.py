"""A server of FastMCP with the skills of a folder (SEP-2640).

usage: python skills_server.py FOLDER [PORT]   (without a port on standard input and output)
"""

import sys

from fastmcp import FastMCP
from fastmcp.skills.provider import SkillsDirectoryProvider

server = FastMCP("skills")
server.add_provider(SkillsDirectoryProvider(sys.argv[1]))
if len(sys.argv) > 2:
    port = int(sys.argv[2])
    server.run(transport="http", host="127.0.0.1", port=port, show_banner=False)
else:
    server.run(show_banner=False)
