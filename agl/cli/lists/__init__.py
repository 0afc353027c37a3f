"""What ``agl ls`` lists, a file a kind: each reads records and lays them out."""
