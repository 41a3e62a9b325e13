"""What providers say, in their own words; later also how they are called."""
