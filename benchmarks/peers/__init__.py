"""Other people's programs beside `best`: adapters to checkouts that the user has; nothing of theirs is here."""
