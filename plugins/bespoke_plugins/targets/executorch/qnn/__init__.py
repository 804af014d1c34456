# SPDX-License-Identifier: Apache-2.0
"""Matrix products of forward graphs for Qualcomm's NPU (HTP), by ExecuTorch's QNN delegate."""
