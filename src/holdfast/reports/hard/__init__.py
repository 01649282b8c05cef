"""Pages of mined hard sets: mining, why models fail, the remedy."""
