"""Statistics of mined hard sets, failure modes and questions."""
