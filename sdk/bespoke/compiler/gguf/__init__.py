# SPDX-License-Identifier: Apache-2.0
"""A GGUF file's metadata as the small files of a model folder that a build reads."""
