"""What commands show: live lines, tables, plans, windows."""
