"""Programs that use a memory: gateway, hooks, daemon, MCP, service, memory tools, inspection."""
