"""What scripts/check_releases.py is made of."""
