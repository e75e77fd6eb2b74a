"""The commands ``specdemo race``, ``models`` and ``export``. (``bench`` and ``device`` are in
``specdemo/bench``, ``corpus`` and ``train`` in ``specdemo/training``.)
"""
