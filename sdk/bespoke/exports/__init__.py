# SPDX-License-Identifier: Apache-2.0
"""What a bundle becomes for other engines: a merged Hugging Face folder, and the base model for llama.cpp."""
