"""Everything outside of the core: stores, providers, embedders, session files, and how they are
opened."""
