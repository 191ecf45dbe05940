"""What Meta's Graph API is for every product on it: requests, errors, the envelope of its webhooks."""
