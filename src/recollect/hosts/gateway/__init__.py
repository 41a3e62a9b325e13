"""The gateway: adds memory to an unmodified agent, which uses the gateway's URL as its base URL."""
