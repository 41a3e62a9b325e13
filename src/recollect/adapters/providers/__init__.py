"""What providers say, in their own words; and how they are called."""
