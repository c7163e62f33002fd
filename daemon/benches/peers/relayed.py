"""The tools `echo` and `large` on pipes, by the Python SDK."""

from mcp.server import MCPServer

server = MCPServer("relayed", log_level="ERROR")


# A structured output would repeat the text.
@server.tool(structured_output=False)
def echo(text: str) -> str:
    return text


@server.tool(structured_output=False)
def large(bytes: int) -> str:
    return "x" * bytes


server.run()
