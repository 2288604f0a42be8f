"""The order of the examples in the gallery."""

ORDER = (
    "two_dimensions",
    "factors",
    "certificate",
    "lambda_path",
    "within_metric",
    "motions",
    "embeddings",
    "pipeline",
    "unknown",
    "enrol_and_erase",
    "unequal_galleries",
    "reliability",
    "error_curves",
    "competitors",
    "scale",
)


def in_order(filename: str) -> tuple[int, str]:
    """Sort key of an example; those without a place come last."""
    name = filename.removeprefix("plot_").removesuffix(".py")
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)
