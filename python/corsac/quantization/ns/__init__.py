"""The numeric suite: values and weights of a quantised model compared with those of the float one.

The names are those of ``torch.ao.ns._numeric_suite_fx``, and of the modules that it uses.

Example::

    a, b = add_loggers("float", prepared, "int8", quantised, OutputLogger)
    a(x), b(x)
    results = extract_logger_info(a, b, OutputLogger, "int8")
    extend_logger_results_with_comparison(results, "float", "int8", compute_sqnr, "sqnr")
"""

from __future__ import annotations

from corsac._lazy import lazy_names

_HOMES = {
    "_subgraphs": ("GraphMatchingException",),
    "loggers": (
        "NSResultsType",
        "OutputComparisonLogger",
        "OutputLogger",
        "extend_logger_results_with_comparison",
        "extract_logger_info",
        "extract_shadow_logger_info",
        "loggers_set_enabled",
        "loggers_set_save_activations",
    ),
    "metrics": ("compute_cosine_similarity", "compute_normalized_l2_error", "compute_sqnr"),
    "multi_mapping": ("QConfigMultiMapping",),
    "n_shadows": (
        "convert_n_shadows_model",
        "extract_results_n_shadows_model",
        "prepare_n_shadows_model",
        "print_comparisons_n_shadows_model",
    ),
    "suite": ("NSTracer", "add_loggers", "add_shadow_loggers", "extract_weights"),
}

__all__ = [name for names in _HOMES.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
