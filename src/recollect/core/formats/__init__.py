"""Wire codecs and transcript readers. Only this package knows how a format is spelled."""
