"""Shared foundations: settings, files, text, network addresses and telemetry."""
