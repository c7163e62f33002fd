"""A server of FastMCP with the skills of a folder (SEP-2640)."""

import sys

from fastmcp import FastMCP
from fastmcp.skills.provider import SkillsDirectoryProvider

server = FastMCP("skills")
server.add_provider(SkillsDirectoryProvider(sys.argv[1]))
server.run(show_banner=False)
