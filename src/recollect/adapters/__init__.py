"""The world outside: stores, providers, embedders, session files, and how they are opened."""
