"""Lanes attached to serving engines: a target that vLLM, llama.cpp, SGLang, TensorRT-LLM or
transformers serves elsewhere, told in the events of every other race.

:mod:`.wire` reads one endpoint, a client per engine turns its stream into :class:`.client.Step`,
:mod:`.settle` says what each pass drafted and kept, :mod:`.race` makes events of two such logs.
"""
