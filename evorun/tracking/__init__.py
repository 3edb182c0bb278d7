"""Trackers: copies of a run's figures in TensorBoard, Weights & Biases, MLflow, Trackio or a plug-in's service."""
