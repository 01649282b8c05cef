"""Statistics of people's votes: agreement, acceptance, reliability."""
