"""The gateway: adds memory to unmodified agents. They only need its base URL."""
