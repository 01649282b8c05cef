"""What all verbs share: progress, summaries, shards and the record of the environment."""
