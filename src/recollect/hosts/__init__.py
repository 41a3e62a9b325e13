"""Programs around a memory: gateway, hooks, daemon, MCP, service, memory tools, inspection."""
