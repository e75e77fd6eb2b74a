"""``specdemo sweep``: a method's figures against one of its settings, as the papers draw them."""
