"""From the description of a model to its graph.

One module an architecture; :data:`.architectures.ARCHITECTURES` names them, and is the one place to
add another.
"""
