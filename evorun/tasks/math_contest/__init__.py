"""Mathematics contests: free text that ends in a boxed answer, graded by its value; a train and a test split each."""
