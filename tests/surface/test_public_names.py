"""The public names and signatures of corsac.fx are those of the installed torch.fx."""

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any

import pytest

from kit import SUBJECT
from kit.implementations import SUBMODULES

# Modules that must be imported explicitly.
PASSES = (
    "passes._tensorify_python_scalars",
    "passes.annotate_getitem_nodes",
    "passes.backends.cudagraphs",
    "passes.canonicalize",
    "passes.dialect.common.cse_pass",
    "passes.fake_tensor_prop",
    "passes.graph_drawer",
    "passes.graph_manipulation",
    "passes.graph_transform_observer",
    "passes.infra.partitioner",
    "passes.infra.pass_base",
    "passes.infra.pass_manager",
    "passes.net_min_base",
    "passes.operator_support",
    "passes.param_fetch",
    "passes.pass_manager",
    "passes.regional_inductor",
    "passes.regional_inductor_invoke_subgraph",
    "passes.reinplace",
    "passes.runtime_assert",
    "passes.shape_prop",
    "passes.split_module",
    "passes.split_utils",
    "passes.splitter_base",
    "passes.tools_common",
    "passes.utils.common",
    "passes.utils.fuser_utils",
    "passes.utils.matcher_utils",
    "passes.utils.matcher_with_name_node_map_utils",
    "passes.utils.source_matcher_utils",
    "experimental.accelerator_partitioner",
    "experimental.const_fold",
    "experimental.debug",
    "experimental.graph_gradual_typechecker",
    "experimental.merge_matmul",
    "experimental.normalize",
    "experimental.optimization",
    "experimental.partitioner_utils",
    "experimental.proxy_tensor",
    "experimental.refinement_types",
    "experimental.rewriter",
    "experimental.schema_type_annotation",
    "experimental.unification",
    "experimental.unification.core",
    "experimental.unification.dispatch",
    "experimental.unification.match",
    "experimental.unification.more",
    "experimental.unification.multipledispatch",
    "experimental.unification.multipledispatch.conflict",
    "experimental.unification.multipledispatch.core",
    "experimental.unification.multipledispatch.dispatcher",
    "experimental.unification.multipledispatch.utils",
    "experimental.unification.multipledispatch.variadic",
    "experimental.unification.unification_tools",
    "experimental.unification.utils",
    "experimental.unification.variable",
    "experimental.unify_refinements",
)

MODULES = [
    "",
    *SUBMODULES,
    *PASSES,
    "_compatibility",
    "_graph_pickler",
    "annotate",
    "operator_schemas",
    "tensor_type",
]

# Modules of torch.fx.experimental that corsac lacks, with the reason. An entry also covers names that start
# with it.
LEFT_TO_TORCH = {
    "_backward_state": "part of torch.compile's own tracer",
    "_config": "settings of torch.compile's symbolic shapes",
    "_constant_symnode": "part of PyTorch's symbolic integers",
    "_dynamism": "part of torch.export",
    "_size_hinting": "part of PyTorch's symbolic shapes",
    "_spec_binding": "part of torch.compile's tracer",
    "dynamic_spec": "how torch.compile is told of dynamic shapes; it knows no graph",
    "meta_tracer": "runs programs on meta tensors while tracing; make_fx and analysis do that",
    "migrate_gradual_types": "gradual types as formulas for z3; unify_refinements solves equalities",
    "recording": "replays PyTorch's symbolic shapes",
    "sym_node": "PyTorch's symbolic integers; values that graphs of both packages hold",
    "symbolic_shapes": "PyTorch's symbolic shapes; values that graphs of both packages hold",
    "validator": "checks PyTorch's symbolic shapes with z3",
}

# The same for torch.fx.passes.
PASSES_LEFT_TO_TORCH = {
    "tests": "PyTorch's tests",
}

# Underscore names that programs nevertheless use.
USED_PRIVATE_NAMES = {
    "graph": [
        "_PyTreeCodeGen",
        "_PyTreeInfo",
        "_BoxedCodeGen",
        "_Namespace",
        "_custom_builtins",
        "_register_custom_builtin",
        "_is_from_torch",
        "_format_target",
        "_snake_case",
    ],
    "passes.net_min_base": ["_MinimizerBase", "_MinimizerSettingBase"],
    "passes.splitter_base": ["_SplitterBase", "_SplitterSettingBase"],
    "_compatibility": ["_BACK_COMPAT_OBJECTS", "_MARKED_WITH_COMPATIBILITY", "compatibility"],
    "experimental.optimization": ["_parent_name"],
    "passes._tensorify_python_scalars": ["tensorify_python_scalars"],
    "passes.utils.matcher_with_name_node_map_utils": ["_split_to_graph_and_name_node_map"],
    "node": ["_format_arg", "_get_qualified_name", "_side_effectful_functions", "_type_repr"],
    "proxy": ["_COPY_META_FIELDS"],
    "operator_schemas": [
        "_args_kwargs_to_normalized_args_kwargs",
        "_manual_overrides",
        "_normalize_function_or_error",
        "_torchscript_schema_to_signature",
        "_torchscript_type_to_python_type",
        "_type_eval_globals",
    ],
    "_symbolic_trace": [
        "is_fx_tracing",
        "is_fx_symbolic_tracing",
        "_assert_is_none",
        "_wrapped_methods_to_patch",
    ],
    "graph_module": [
        "_copy_attr",
        "_assign_attr",
        "_get_attr",
        "_has_attr",
        "_del_attr",
        "_forward_from_src",
        "_exec_with_source",
    ],
}

# Methods of every object, and accidents of how a class is written.
IGNORED_METHODS = {
    "__module__",
    "__dict__",
    "__weakref__",
    "__doc__",
    "__annotations__",
    "__orig_bases__",
    "__parameters__",
    "__hash__",
    "__qualname__",
    "__jit_unused_properties__",
    "__dataclass_fields__",
    "__dataclass_params__",
    "__match_args__",
    "__static_attributes__",
    "__firstlineno__",
}


def reference_module(name: str) -> ModuleType:
    return importlib.import_module(f"torch.fx.{name}" if name else "torch.fx")


def subject_module(name: str) -> ModuleType:
    return importlib.import_module(f"{SUBJECT.name}.{name}" if name else SUBJECT.name)


def defined_here(module: ModuleType, value: Any) -> bool:
    """Whether a value is defined in the module; values without a module count as its own."""
    if isinstance(value, ModuleType):
        return False
    home = getattr(value, "__module__", None)
    return home is None or not isinstance(home, str) or home == module.__name__


def public_names(name: str) -> list[str]:
    module = reference_module(name)
    exported = set(getattr(module, "__all__", ()))
    own = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and (inspect.isclass(value) or inspect.isroutine(value))
        if defined_here(module, value)
    }
    return sorted(exported | own | set(USED_PRIVATE_NAMES.get(name, ())))


NAMES = [(module, name) for module in MODULES for name in public_names(module)]


def parameters(value: Any) -> list[tuple[str, Any, str]] | None:
    """Name, kind and default of each parameter; None if Python has no signature."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    return [
        (p.name, p.kind, "required" if p.default is p.empty else describe(p.default))
        for p in signature.parameters.values()
    ]


def describe(default: Any) -> str:
    """A default as text, without differences between two modules."""
    if inspect.isroutine(default):
        return "a function"
    return repr(default).replace(SUBJECT.name, "torch.fx")


#: Names that modules of torch.fx import from others, and that programs import from there.
PASSED_ON = {
    "_symbolic_trace": ["map_aggregate"],
    "experimental.accelerator_partitioner": ["map_arg"],
    "experimental.const_fold": ["map_arg", "split_module"],
    "experimental.merge_matmul": ["legalize_graph"],
    "experimental.optimization": ["ShapeProp"],
    "experimental.partitioner_utils": ["map_arg"],
    "graph": [
        "_get_qualified_name",
        "_origin_type_map",
        "_type_repr",
        "immutable_dict",
        "map_arg",
    ],
    "passes.graph_manipulation": ["map_arg"],
    "passes.split_module": ["_LazyGraphModule"],
    "passes.split_utils": ["map_arg"],
    "passes.splitter_base": ["FxGraphDrawer"],
    "proxy": ["immutable_dict", "immutable_list"],
    "subgraph_rewriter": ["map_arg"],
}


@pytest.mark.parametrize("module", PASSED_ON)
def test_names_of_other_modules_are_passed_on(module):
    ours = subject_module(module)
    theirs = importlib.import_module(f"torch.fx.{module}")
    for name in PASSED_ON[module]:
        assert hasattr(theirs, name)
        home = getattr(ours, name).__module__ if name != "_origin_type_map" else "torch.fx.graph"
        assert home is None or home.startswith(("corsac", "torch.fx")), (name, home)


@pytest.mark.parametrize("module", MODULES)
def test_module_is_there(module):
    subject_module(module)


def test_every_experimental_module_is_there_or_declared():
    import torch.fx.experimental as experimental

    prefix = "torch.fx."
    found = {
        module.name.removeprefix(prefix)
        for module in pkgutil.walk_packages(experimental.__path__, f"{prefix}experimental.")
    }
    absent = {name for name in found if name not in MODULES}
    declared = {
        name for name in absent if name.removeprefix("experimental.").split(".")[0] in LEFT_TO_TORCH
    }
    assert absent == declared
    for name in LEFT_TO_TORCH:
        assert f"experimental.{name}" in found, f"torch.fx no longer has {name}"


def test_every_module_of_passes_is_there_or_declared():
    import torch.fx.passes as passes

    prefix = "torch.fx.passes."
    found = {
        module.name.removeprefix(prefix)
        for module in pkgutil.walk_packages(passes.__path__, prefix)
        if not module.ispkg or module.name.removeprefix(prefix) in PASSES_LEFT_TO_TORCH
    }
    absent = {name for name in found if f"passes.{name}" not in MODULES}
    assert {name.split(".")[0] for name in absent} == PASSES_LEFT_TO_TORCH.keys()


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_name_is_there(module, name):
    assert hasattr(subject_module(module), name), f"{SUBJECT.name}.{module} has no {name}"


@pytest.mark.parametrize("module", MODULES)
def test_exports(module):
    exported = set(getattr(reference_module(module), "__all__", ()))
    assert exported <= set(getattr(subject_module(module), "__all__", ())) or not exported


def members_of(reference: type) -> dict[str, Any]:
    """Public and special methods and properties that a class defines itself."""
    special = ("__init__", "__call__", "__str__", "__repr__", "__len__", "__iter__")
    special += ("__reversed__", "__copy__", "__deepcopy__", "__reduce__", "__bool__")
    special += ("__torch_function__", "__lt__", "__gt__", "__le__", "__ge__", "__abs__")
    members = {}
    for owner in reversed(reference.__mro__):
        if owner.__module__.startswith(("torch.fx", "torch._C")) and owner is not object:
            members.update(vars(owner))
    return {
        key: value
        for key, value in members.items()
        if (not key.startswith("_") or key in special) and key not in IGNORED_METHODS
    }


CLASSES = sorted(
    (module, name)
    for module, name in NAMES
    if module and inspect.isclass(getattr(reference_module(module), name))
)


@pytest.mark.parametrize(("module", "name"), CLASSES)
def test_members_of_a_class(module, name):
    reference = getattr(reference_module(module), name)
    subject = getattr(subject_module(module), name)
    missing = [key for key in members_of(reference) if not hasattr(subject, key)]
    assert not missing, f"{module}.{name} lacks {missing}"


CALLABLES = [
    (module, name, "")
    for module, name in NAMES
    if callable(getattr(reference_module(module), name))
] + [
    (module, name, key)
    for module, name in CLASSES
    for key, value in members_of(getattr(reference_module(module), name)).items()
    if callable(getattr(getattr(reference_module(module), name), key, None))
]


@pytest.mark.parametrize(("module", "name", "member"), CALLABLES)
def test_signature(module, name, member):
    reference = getattr(reference_module(module), name)
    subject = getattr(subject_module(module), name)
    if member:
        reference, subject = getattr(reference, member), getattr(subject, member)
    if subject is reference:
        return
    expected = parameters(reference)
    if expected is None or takes_anything(expected):
        pytest.skip("the reference does not say what it takes")
    given = parameters(subject)
    if given is None or is_slot(subject) or takes_anything(given):
        assert is_slot(subject) or inspect.isclass(subject), "the subject has no signature"
        pytest.skip("Python does not know the parameters of what is not written in it")
    # More parameters may follow those of the reference, if they are optional.
    common, more = given[: len(expected)], given[len(expected) :]
    assert len(common) == len(expected), f"{expected[len(common) :]} missing"
    for theirs, ours in zip(expected, common, strict=True):
        if theirs[0] == "self" == ours[0]:
            continue  # always positional
        assert ours[:2] == theirs[:2]
        # A native function cannot show every default; None represents a function without effect.
        same = (theirs[2], "Ellipsis", "None" if theirs[2] == "a function" else theirs[2])
        assert ours[2] in same, f"the default of {theirs[0]}"
    assert all(default != "required" for _, _, default in more)


def takes_anything(given: list[tuple[str, Any, str]]) -> bool:
    """Whether a constructor leaves its parameters to ``__init__``, so that subclasses can define theirs."""
    kinds = [kind for _, kind, _ in given]
    return kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]


def test_constructors_by_keyword():
    """Constructors of native classes, whose parameters signatures cannot show, accept keywords."""
    fx = SUBJECT.fx
    graph = fx.Graph()
    node = graph.placeholder("x")
    tracer = fx.proxy.GraphAppendingTracer(graph=graph)
    proxy = fx.Proxy(node=node, tracer=tracer)
    assert proxy.node is node and proxy.tracer is tracer
    assert fx.proxy.Attribute(root=proxy, attr="shape").root is proxy
    assert isinstance(fx.proxy.TracerBase(), fx.proxy.TracerBase)
    made = fx.Node(
        graph=graph, name="made", op="call_method", target="relu", args=(node,), kwargs={}
    )
    assert made.name == "made"


def is_slot(value: Any) -> bool:
    """Whether the signature was made up by Python for a special method of a native class."""
    return type(value).__name__ in ("wrapper_descriptor", "method-wrapper")


@pytest.mark.parametrize(("module", "name"), CLASSES)
def test_base_classes(module, name):
    """Lists, dicts, errors and modules of the reference are of the same kind here."""
    import builtins

    import torch

    reference = getattr(reference_module(module), name)
    subject = getattr(subject_module(module), name)
    common = [
        base
        for base in reference.__mro__
        if base is torch.nn.Module or getattr(builtins, base.__name__, None) is base
    ]
    assert all(issubclass(subject, base) for base in common)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_documented(module, name):
    """Every public name that the reference documents has a docstring."""
    if not inspect.getdoc(getattr(reference_module(module), name)) or name.startswith("_"):
        pytest.skip("not documented there either")
    value = getattr(subject_module(module), name)
    if inspect.isclass(value) or inspect.isroutine(value):
        assert inspect.getdoc(value), f"{module}.{name} has no docstring"


def test_nothing_of_corsac_is_marked():
    from corsac.fx import _compatibility as mark

    names = {f"{own.__module__}.{own.__qualname__}" for own in mark._MARKED_WITH_COMPATIBILITY}
    assert not [name for name in names if name.startswith("corsac.")]
