"""What the scripts of tests/oracle share."""
