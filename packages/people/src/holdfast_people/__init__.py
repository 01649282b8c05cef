"""People who draw masks and judge images: their accounts, tasks, answers, and the database."""
