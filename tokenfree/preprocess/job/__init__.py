"""The steps of a preprocessing job, whose directory it is, its finish, and the replay of failed pages."""
