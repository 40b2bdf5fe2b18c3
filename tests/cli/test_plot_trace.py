# SPDX-License-Identifier: Apache-2.0
"""tools/plot_trace.py on traces, made up and of the program."""
import os
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
import plot_trace  # noqa: E402

HEAD = ",".join(plot_trace.COLUMNS)
LINES = ["0,0,100,100,4096,0,1,1000,2000,7", "0,1,100,10,8192,2,0,1000,2000,3", "1,0,102,102,0,0,0,1000,2000,0",
         "1,1,102,51,0,1,1,1200,2400,5"]


def write(path, *lines):
    path.write_text("\n".join([HEAD, *lines]) + "\n")
    return path


def draw(*args):
    p = subprocess.run([sys.executable, plot_trace.__file__, *map(str, args)], capture_output=True, text=True)
    return p.returncode, p.stdout, p.stderr


def test_numbers(tmp_path):
    rows = plot_trace.read_trace(write(tmp_path / "t.csv", *LINES))
    plot_trace.number_steps(rows)
    assert plot_trace.share_map(rows) == [[1, 1], [0.1, 0.5]]
    sums = plot_trace.per_step(rows)
    assert sums["fetched_bytes"] == [12288, 0] and sums["hits"] == [2, 1] and sums["misses"] == [1, 1]
    assert sums["stall_us"] == [10, 5] and sums["ram_bytes"] == [1000, 1200]


def test_sessions_one_after_the_other(tmp_path):
    rows = plot_trace.read_trace(write(tmp_path / "t.csv", *LINES[:2], *LINES))
    plot_trace.number_steps(rows)
    assert [row["time"] for row in rows] == [0, 0, 1, 1, 2, 2]


def test_what_is_wrong_is_said(tmp_path):
    cut = write(tmp_path / "cut.csv", *LINES, "2,0,10")
    assert len(plot_trace.read_trace(cut)) == 4
    for lines, message in ((["1,2,3", *LINES], "line 2"), ([], "no steps")):
        status, out, err = draw(write(tmp_path / "bad.csv", *lines))
        assert status == 1 and out == "" and message in err and err.count("\n") == 1
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert "not a trace" in draw(tmp_path / "other.csv")[2]
    assert "none.csv" in draw(tmp_path / "none.csv")[2]


def test_without_matplotlib(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError(name='matplotlib')\n")
    trace = write(tmp_path / "t.csv", *LINES)
    p = subprocess.run([sys.executable, plot_trace.__file__, trace], capture_output=True, text=True,
                       env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert p.returncode == 1 and "pip install matplotlib" in p.stderr and p.stderr.count("\n") == 1


def test_figure_of_a_run(program, model, tmp_path):
    pytest.importorskip("matplotlib")
    trace, figure = tmp_path / "trace.csv", tmp_path / "figure.svg"
    status = program("run", "-m", model, "--raw", "-p", "The sea was calm. " * 60, "-n", "4", "--kv-trace", trace)[0]
    assert status == 0 and len(plot_trace.read_trace(trace)) == 30 * 4
    assert draw(trace, "-o", figure) == (0, "", "") and figure.read_text().rstrip().endswith("</svg>")
    assert draw(write(tmp_path / "t.csv", *LINES)) == (0, "", "") and (tmp_path / "t.png").stat().st_size > 1000
