"""An OpenAI-compatible endpoint, or several, behind one engine."""
