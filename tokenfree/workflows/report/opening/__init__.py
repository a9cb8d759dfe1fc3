"""What a page opens with: findings in sentences, and with what its results were made."""
