"""What fills the rows of tables: each kind of measurement in a file of its own."""
