"""Parts without knowledge of memories: settings, files, text, network addresses and telemetry."""
