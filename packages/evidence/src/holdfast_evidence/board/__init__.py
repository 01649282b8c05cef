"""The leaderboard: entries that are recomputed from their per-sample tables, and the site made of them."""
