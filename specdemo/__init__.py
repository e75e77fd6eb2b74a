"""SpecDemo: watch a language model write the same tokens faster with a diffusion drafter."""

__version__ = "0.1.0"
