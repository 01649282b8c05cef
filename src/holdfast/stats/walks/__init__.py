"""Statistics of latent walks: the FMR family."""
