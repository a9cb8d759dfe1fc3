"""How trials run: sessions, their groups of workers, Ray Tune."""
