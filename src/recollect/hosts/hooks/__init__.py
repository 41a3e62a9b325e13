"""Memory for agents that call hooks: Claude Code and Codex tell what happens, and are told."""
