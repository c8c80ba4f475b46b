"""Credentials of tests, which a server on this machine believes; they are to be seen in no message."""

KEYS = {"AWS_ACCESS_KEY_ID": "AKIATESTOFSTORES", "AWS_SECRET_ACCESS_KEY": "secret/of+the+tests"}
