"""Problems of construction: a program builds an object, and the object has a score without right and wrong."""
