"""What commands show: tables, progress, problems; safe for any terminal."""
