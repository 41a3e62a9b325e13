"""The PostgreSQL store: many small spaces in one database.

`store.PostgresFleet` owns the connections, `store.PostgresStore` is one space. Without the extra,
importing a module raises MissingExtra."""
