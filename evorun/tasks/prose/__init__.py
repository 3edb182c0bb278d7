"""The tasks whose answers are prose: essay, ethics and billsum (MPO, section 3)."""
