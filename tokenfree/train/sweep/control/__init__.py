"""What a sweep does next: its journal, the history of its trials, proposals, placement, the controller."""
