"""What the explorer knows as files and downloads."""
