"""Rules of training frameworks: what people type by hand, and what the frameworks' own planners choose."""
