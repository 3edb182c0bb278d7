"""Model calls under a key, a role and a budget; rollouts of a policy and their rewards."""
