"""A trained policy outside of fova: as an ONNX file, and behind a small HTTP service.

Nothing here trains, and nothing here needs JAX: what a deployed policy does is computed from its file.
"""
