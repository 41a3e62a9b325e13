"""Wire codecs and transcript readers. No other package knows how a format is written."""
