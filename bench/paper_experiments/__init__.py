# SPDX-License-Identifier: Apache-2.0
"""The experiments of bench/paper, in the order in which the page shows them."""
from . import accuracy, frontier, long_text, observed, speed

EXPERIMENTS = {e.id: e for module in (observed, accuracy, speed, frontier, long_text) for e in module.EXPERIMENTS}
