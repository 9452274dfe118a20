"""What each kind of implementations is worth."""
