"""`pca.plot()`: every picture of models of any size, what is drawn, and what is refused."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

from harness.models import fitted, model_of, rows_and_model
from ppca.estimator.figure import NotebookFigure
from ppca.estimator.plot import PICTURES
from ppca.receiver.interpret import arrows, cautions, correlations, summary


@pytest.mark.parametrize(("width", "count"), [(1, 1), (2, 2), (5, 1), (60, 3), (200, 12)])
def test_every_picture_of_every_size(tmp_path: Path, width: int, count: int) -> None:
    rows, model = rows_and_model(30, width, count)
    pca = fitted(model)
    for kind in ("summary", *PICTURES):
        figure = pca.plot(rows, kind=kind, groups=["a", "b"] * 15 if kind != "loadings" else None)
        assert isinstance(figure, Figure)
    pca.plot().savefig(tmp_path / "pca.png", dpi=30)
    assert (tmp_path / "pca.png").stat().st_size > 5_000


def test_what_is_drawn() -> None:
    rows, model = rows_and_model(50, 6, 3, names=["age", "height", "weight", "pressure", "glucose", "pulse"])
    pca = fitted(model)
    (scree,) = pca.plot(kind="scree").axes
    assert [bar.get_height() for bar in scree.patches] == pytest.approx(100 * model.explained_variance_ratio)
    cumulative = scree.lines[0].get_ydata()
    assert np.asarray(cumulative, float) == pytest.approx(100 * np.cumsum(model.explained_variance_ratio))
    (scores,) = pca.plot(rows, kind="scores", components=(3, 1)).axes
    drawn = np.asarray(scores.collections[0].get_offsets())
    np.testing.assert_allclose(drawn, pca.transform(rows)[:, [2, 0]], rtol=1e-12)
    (circle,) = pca.plot(kind="circle").axes
    assert {text.get_text() for text in circle.texts} >= {"age", "height", "weight", "pressure", "glucose", "pulse"}
    heat = pca.plot(kind="loadings").axes[0]
    np.testing.assert_array_equal(heat.images[0].get_array(), model.components.T)
    (errors,) = pca.plot(kind="errors").axes
    offsets = np.asarray(errors.collections[0].get_offsets())
    np.testing.assert_allclose(offsets[:, 1], model.component_error)


@pytest.mark.parametrize("kind", ["summary", "scree"])
def test_notebooks_show_the_picture(kind: str) -> None:
    """IPython calls _repr_png_ of the value of a cell; pyplot keeps no figure, which would be shown twice."""
    _, model = rows_and_model(30, 4, 2)
    figure = fitted(model).plot(kind=kind)
    assert isinstance(figure, NotebookFigure)
    picture = plt.imread(BytesIO(figure._repr_png_()))
    width, height = (figure.get_size_inches() * figure.dpi).round().astype(int)
    assert picture.shape == (height, width, 4)
    assert picture.std() > 0.01
    assert plt.get_fignums() == []
    again = pickle.loads(pickle.dumps(figure))
    assert again._repr_png_()[:8] == b"\x89PNG\r\n\x1a\n"


def test_axes_of_the_caller() -> None:
    _, model = rows_and_model(30, 4, 2)
    mine = Figure().subplots()
    assert fitted(model).plot(kind="scree", ax=mine) is mine.figure
    assert len(mine.patches) == 2
    with pytest.raises(ValueError, match="does not fit into ax"):
        fitted(model).plot(ax=mine)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"kind": "pie"}, "must be 'summary' or one of: scree"),
        ({"kind": "scores"}, "needs rows"),
        ({"components": (1, 1)}, "two different numbers from 1 to 2"),
        ({"components": (1, 3)}, "two different numbers from 1 to 2"),
        ({"groups": ["a"]}, "1 labels for 0 rows"),
    ],
)
def test_what_is_refused(arguments: dict[str, object], said: str) -> None:
    _, model = rows_and_model(30, 4, 2)
    with pytest.raises(ValueError, match=said):
        fitted(model).plot(**arguments)  # type: ignore[arg-type]


@pytest.mark.processes
def test_without_matplotlib_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "sys.path[:0] = sys.argv[1:]\n"
        "from harness.models import fitted, model_of\n"
        "import ppca, ppca.cli.main\n"
        "try: fitted(model_of(4, 2)).plot()\n"
        "except ImportError as error: print(error)"
    )
    tests = str(Path(__file__).resolve().parents[1])
    done = subprocess.run([sys.executable, "-c", program, tests], capture_output=True, text=True, timeout=120)
    assert "pip install 'ppca[plot]'" in done.stdout, done.stderr


def test_correlations_are_those_of_rows_and_scores() -> None:
    """Exact for standardised columns and for models with all components; of other models they are not given."""
    for standardize, count in ((True, 2), (True, 5), (False, 5)):
        rows, model = rows_and_model(80, 5, count, standardize=standardize)
        found = correlations(model)
        assert found is not None
        expected = np.corrcoef(rows.T, model.project(rows).T)[5:, :5]
        np.testing.assert_allclose(found, expected, atol=1e-10)
    _, model = rows_and_model(80, 5, 2, standardize=False)
    assert correlations(model) is None
    points, correlated = arrows(model, 0, 1)
    assert not correlated
    assert np.hypot(*points.T).max() == pytest.approx(1.0)


def test_the_paragraph_and_the_cautions() -> None:
    names = ["age", "height", "weight", "pressure", "glucose", "pulse"]
    _, model = rows_and_model(50, 6, 3, names=names)
    text = summary(model, 3)
    first = names[int(np.abs(model.components[0]).argmax())]
    assert text.startswith("This PCA is of 50 rows and 6 columns of 3 owners together, with standardised columns")
    assert f"The first three components explain {100 * model.explained_variance_ratio.sum():.2f} %" in text
    assert "Component 1 is driven by" in text
    assert first in text
    assert cautions(model, 3) == []
    assert [head for head, _ in cautions(model, 6)] == ["Small groups."]
    few = replace(model, rows=8, verified=False, component_error=np.array([1e-8, 0.5, 0.5]))
    assert [head for head, _ in cautions(few)] == [
        "The check on shares failed.",
        "Few rows.",
        "Components that are not determined.",
    ]
    flat = model_of(4, 2, explained_variance=np.zeros(2), explained_variance_ratio=np.zeros(2), total_variance=0.0)
    assert "do not vary" in summary(flat)
