"""The queue and the record: one contract (base), pure transitions (lifecycle), SQLite, and what serves them."""
