"""How often a path must run again so that it can be visited in reverse: a bound where memory is tight."""
