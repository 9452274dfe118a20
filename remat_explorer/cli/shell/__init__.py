"""What the command line shares with the shell that started it: standard streams, and Ctrl-C."""
