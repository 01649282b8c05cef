"""Results in the formats of other tools: FiftyOne, Hugging Face, MAITE, harnesses of vision-language models."""
