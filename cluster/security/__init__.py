"""What makes a cluster on this machine secure: its authority, first user and clients' settings."""
