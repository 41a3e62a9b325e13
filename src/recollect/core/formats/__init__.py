"""Wire codecs and transcript readers: the only place that knows how a format is spelled."""
