"""Programs that measure, break or record the product; `just` has a recipe for each."""
