"""Ground for the other rooms: settings, files, text, network addresses and telemetry."""
