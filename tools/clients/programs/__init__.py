"""Small programs on official SDKs, as people write them; each prints what it was answered."""
