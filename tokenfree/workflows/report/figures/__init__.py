"""The pictures of reports, as SVG."""
