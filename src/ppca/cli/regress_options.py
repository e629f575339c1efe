"""The options of `ppca regress` and of `ppca job regress`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from .fit_options import TableOptions
from .options import RESULT, names_in

if TYPE_CHECKING:
    from ..jobs.regression import JointRegression

TITLE = "Joint regression"


@dataclass(frozen=True, kw_only=True)
class RegressionOptions:
    """Options of a regression."""

    target: Annotated[str, typer.Option("--target", help="Column that the other columns explain; or owner:column.")]
    method: Annotated[str, typer.Option(help="ols (least squares) or ridge.")] = "ols"
    alpha: Annotated[float | None, typer.Option(help="Penalty of ridge regression, above 0. Default: 1.")] = None
    standardize: Annotated[
        bool,
        typer.Option(
            "--standardize", help="Apply the ridge penalty to columns divided by their joint standard deviation."
        ),
    ] = False
    reveal: Annotated[
        list[str] | None,
        typer.Option(
            "--reveal",
            help="Also reveal these parts: correlation, vif.",
            rich_help_panel=RESULT,
        ),
    ] = None

    def analysis(self, target: str) -> JointRegression:
        """The parameters of the regression of this column."""
        from ..jobs.regression import OLS, JointRegression

        if self.method == OLS and (self.alpha is not None or self.standardize):
            raise ValueError("--alpha and --standardize are for the penalty of --method ridge.")
        alpha = 0.0 if self.method == OLS else 1.0 if self.alpha is None else self.alpha
        return JointRegression(target=target, method=self.method, alpha=alpha, scaled=self.standardize)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the result that a receiver gets."""
        from ..jobs.regression import RESULT

        return (RESULT, *(names_in(self.reveal) or []))


@dataclass(frozen=True, kw_only=True)
class RegressOptions(TableOptions, RegressionOptions):
    """One field per option of a regression on local servers."""

    title: Annotated[str, typer.Option(help="Title of the report.", rich_help_panel=RESULT)] = TITLE
