"""Memory for agents that call hooks: Claude Code and Codex."""
