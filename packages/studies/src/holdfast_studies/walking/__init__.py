"""Studies of latent walks."""
