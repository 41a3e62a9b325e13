"""MCP: a client starts `recollect mcp`, stores each line, and searches for the last one.

pip install '.[mcp]'
python examples/mcp_client.py "The crane is red." "Which color is the crane?"
"""

import asyncio
import sys

from mcp import Client, StdioServerParameters

SERVER = StdioServerParameters(command="recollect", args=["mcp", "--space", "examples"])


async def main() -> None:
    """Call two memory tools."""
    *notes, question = sys.argv[1:]
    async with Client(SERVER) as client:
        for note in notes:
            await client.call_tool("memory_store", {"text": note})
        found = await client.call_tool("memory_search", {"query": question})
        print(found.content[0].text)


asyncio.run(main())
