"""Questions to vision-language models, and classifiers on the same options."""
