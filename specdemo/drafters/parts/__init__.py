"""What the methods share: types of a round, candidates, trees, n-grams, adaptive policies."""
