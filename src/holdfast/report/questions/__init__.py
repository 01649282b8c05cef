"""The section on questions that were asked of vision-language models."""
