# SPDX-License-Identifier: Apache-2.0
"""File formats shared by all packages: strict JSON, mapped safetensors, folders that appear whole."""
