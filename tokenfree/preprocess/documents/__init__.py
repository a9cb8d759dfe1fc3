"""From a page to a document, and the pages that failed on the way."""
