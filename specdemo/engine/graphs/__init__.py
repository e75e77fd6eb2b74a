"""Rounds that run on the device from upload to download: no decision is left to the host between
them, every buffer keeps its address and every operator its shape, so that a GPU can replay a round
as one captured graph.

:mod:`.state` what a lane keeps on the device; :mod:`.choose` penalties, filters and noise;
:mod:`.verify` pass, acceptance and cache; :mod:`.draft` the block drafter's pass; :mod:`.capture`
the graphs; :mod:`.rounds` what a loaded engine owns of all this; :mod:`.lane` the lane that runs on
it.
"""
