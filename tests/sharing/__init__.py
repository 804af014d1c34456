# SPDX-License-Identifier: Apache-2.0
"""One state in the hands of several processes, through PersonalModel, the command line and the C API alone."""
