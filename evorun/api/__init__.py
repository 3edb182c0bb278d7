"""The Python API: runs started, loaded and compared from a script or a notebook; `evorun` exports its names."""
