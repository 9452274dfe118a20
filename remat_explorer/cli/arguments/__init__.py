"""Options of the commands, and what their words are read as."""
