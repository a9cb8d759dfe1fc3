"""The steps of a job that find near-duplicates, where the recipe asks for them."""
