"""Essays and stories on writing instructions (MPO, section 3.2), scored by a judge, without right and wrong."""
