"""Images made to order: pools of prompts, and new backgrounds for images."""
