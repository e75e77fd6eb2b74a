"""The page: one renderer (``static/``) for live runs, recordings and exported pages, and the Gradio
layout around it.
"""
