"""The panels beside the plots."""
