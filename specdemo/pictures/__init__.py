"""Pictures of a race for slides and papers, drawn from its events: stills as PNG or SVG, animations
as GIF or MP4. Knows nothing about torch or gradio.
"""
