# SPDX-License-Identifier: Apache-2.0
"""Training loss over the passes of a row, by data set and method: the curves of tests/benchmarks/learning.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.learning_table import at_taken_rate, points

__all__ = ["draw"]

Run = dict[str, Any]
COLORS = dict(
    zip(
        ("mesp", "mezo", "kzoo", "prge1", "prge4", "prge16", "fzoo", "hizoo"),
        ("#1f2328", "#1f6feb", "#0a9396", "#e5b80b", "#ee9b00", "#bb3e03", "#9d4edd", "#6e7781"),
        strict=True,
    )
)


def draw(runs: Sequence[Run], picture: Path) -> None:
    """An SVG, a panel for each data set: means as lines, one standard deviation as bands. The same runs give the same bytes."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(run["data"] for run in runs if run["phase"] == "test"))
    style = {"svg.hashsalt": "bespoke", "svg.fonttype": "none", "font.size": 10}
    with pyplot.rc_context(style):  # type: ignore[arg-type]
        figure, panels = pyplot.subplots(
            (len(names) + 1) // 2, 2, figsize=(9, 3.4 * ((len(names) + 1) // 2)), squeeze=False
        )
        for panel in panels.flat[len(names) :]:
            panel.remove()
        for name, panel in zip(names, panels.flat, strict=False):
            of_data = [run for run in runs if run["data"] == name]
            for method in dict.fromkeys(run["method"] for run in of_data if run["phase"] == "test"):
                passes, means, spreads = zip(*points(at_taken_rate(of_data, method)), strict=True)
                panel.plot(passes, means, marker="o", markersize=3, color=COLORS[method], label=method)
                low, high = (
                    [mean + sign * spread for mean, spread in zip(means, spreads, strict=True)] for sign in (-1, 1)
                )
                panel.fill_between(passes, low, high, color=COLORS[method], alpha=0.2, linewidth=0)
            panel.set(
                title=name,
                xlim=(0, None),
                ylim=(0, None),
                xlabel="passes of a row",
                ylabel="training loss, nats a token",
            )
            panel.spines[["top", "right"]].set_visible(False)
        lines, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="upper center", ncols=len(labels), frameon=False)
        figure.tight_layout(rect=(0, 0, 1, 0.95))
        picture.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(picture, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
