"""Fixed samples on the page: what models guess for hidden pieces, and windows with their features."""
