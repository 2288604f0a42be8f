# SPDX-License-Identifier: BSD-3-Clause
"""Error rates of recognition from scores, in the terms of ISO/IEC 19795-1."""

from dualqml._lazy import lazy_names

TYPE_CHECKING = False  # as in the module typing, which takes long to import
if TYPE_CHECKING:
    from dualqml.evaluation.cmc import cmc_curve, true_ranks
    from dualqml.evaluation.displays import (
        CMCDisplay,
        DETDisplay,
        OpenSetDisplay,
        ROCDisplay,
        ScoreHistogramDisplay,
    )
    from dualqml.evaluation.failures import (
        FailureCounts,
        GeneralisedRates,
        count_failures,
        generalised_rates,
    )
    from dualqml.evaluation.identification import (
        OpenSetCurve,
        OpenSetPoint,
        fnir_at_fpir,
        fnir_at_fpir_by_acceptance,
        open_set_curve,
        open_set_curve_by_acceptance,
    )
    from dualqml.evaluation.intervals import (
        Interval,
        binomial_interval,
        bootstrap_interval,
        rule_of_three,
    )
    from dualqml.evaluation.method_displays import (
        CertificateDisplay,
        CertificatePathDisplay,
        QuadraticFormDisplay,
    )
    from dualqml.evaluation.verification import (
        ErrorCurve,
        OperatingPoint,
        equal_error_rate,
        error_curve,
        fnmr_at_fmr,
        rates_at_threshold,
        threshold_for_rate,
    )
    from dualqml.exceptions import ScoreError

__all__ = [
    "CMCDisplay",
    "CertificateDisplay",
    "CertificatePathDisplay",
    "DETDisplay",
    "ErrorCurve",
    "FailureCounts",
    "GeneralisedRates",
    "Interval",
    "OpenSetCurve",
    "OpenSetDisplay",
    "OpenSetPoint",
    "OperatingPoint",
    "QuadraticFormDisplay",
    "ROCDisplay",
    "ScoreError",
    "ScoreHistogramDisplay",
    "binomial_interval",
    "bootstrap_interval",
    "cmc_curve",
    "count_failures",
    "equal_error_rate",
    "error_curve",
    "fnir_at_fpir",
    "fnir_at_fpir_by_acceptance",
    "fnmr_at_fmr",
    "generalised_rates",
    "open_set_curve",
    "open_set_curve_by_acceptance",
    "rates_at_threshold",
    "rule_of_three",
    "threshold_for_rate",
    "true_ranks",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "dualqml.evaluation.cmc": "cmc_curve true_ranks",
        "dualqml.evaluation.displays": (
            "CMCDisplay DETDisplay OpenSetDisplay ROCDisplay ScoreHistogramDisplay"
        ),
        "dualqml.evaluation.failures": (
            "FailureCounts GeneralisedRates count_failures generalised_rates"
        ),
        "dualqml.evaluation.identification": (
            "OpenSetCurve OpenSetPoint fnir_at_fpir fnir_at_fpir_by_acceptance "
            "open_set_curve open_set_curve_by_acceptance"
        ),
        "dualqml.evaluation.intervals": (
            "Interval binomial_interval bootstrap_interval rule_of_three"
        ),
        "dualqml.evaluation.method_displays": (
            "CertificateDisplay CertificatePathDisplay QuadraticFormDisplay"
        ),
        "dualqml.evaluation.verification": (
            "ErrorCurve OperatingPoint equal_error_rate error_curve fnmr_at_fmr "
            "rates_at_threshold threshold_for_rate"
        ),
        "dualqml.exceptions": "ScoreError",
    },
)
