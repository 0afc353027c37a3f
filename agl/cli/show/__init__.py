"""What ``agl show`` shows, a file a kind of record: each reads it and lays it out."""
