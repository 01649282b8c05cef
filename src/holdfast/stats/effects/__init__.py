"""What a condition does to a model: drops, score, verdict, confidence, segmentation."""
