"""The general step: a pass through transformers' own model, for families that the fast step does
not compute.

The model calls our attention and our masks (transformers' ``AttentionInterface``), which know the
tree of the pass, stores keys and values in slots of ours, and multiplies row-independently.
"""
