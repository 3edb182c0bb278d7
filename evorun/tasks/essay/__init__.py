"""Essays and stories on writing instructions (MPO, section 3.2): no right and wrong, a judge scores them."""
