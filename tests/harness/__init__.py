"""What the suites run beside pytest: servers, processes that are killed, a real model."""
