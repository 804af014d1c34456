# SPDX-License-Identifier: Apache-2.0
"""Files as every part reads and writes them: strict JSON, safetensors that can be mapped, folders that appear whole."""
