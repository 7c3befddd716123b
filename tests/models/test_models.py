"""Real models: the same graphs, code and results under both implementations."""

import copy
import gc
import operator
import pickle

import pytest
import torch

from kit import REFERENCE, SUBJECT, differential, known_difference
from kit.differential import _same_exception
from kit.known import WRITES_STAY
from kit.observe import Raised, attempt
from models.zoo import (
    CLASSIFICATION,
    FAMILIES,
    RUN,
    SEGMENTATION,
    TIMM,
    TIMM_UNTRACEABLE,
    VIDEO,
    create,
    create_without_weights,
)

ALL = [f"torchvision:{name}" for name in (*CLASSIFICATION, *SEGMENTATION, *VIDEO)]
ALL += [f"timm:{name}" for name in TIMM]
# Always traced: one of each family of torchvision, and some of timm. All together take minutes.
QUICK = {*(f"torchvision:{name}" for name in FAMILIES), *(f"timm:{name}" for name in TIMM[::3])}


def quick(sources):
    """Parameters of a test, of which those that are not ``sources`` are slow."""
    return [s if s in sources else pytest.param(s, marks=pytest.mark.slow) for s in ALL]


@pytest.fixture(autouse=True)
def free_memory():
    """Collect garbage, since graph modules are parts of cycles and two large models should not overlap."""
    yield
    gc.collect()


@pytest.mark.parametrize("source", quick(QUICK))
@differential
def test_tracing(fx, rec, source):
    rec.reads_back = True
    rec("traced", fx.symbolic_trace(create_without_weights(source)))


@pytest.mark.parametrize("source", RUN)
@differential
def test_running(fx, rec, source):
    model = create(source)
    traced = fx.symbolic_trace(model)
    inputs = torch.randn(RUN[source])
    with torch.no_grad():
        rec("eager", model(inputs))
        rec("traced", traced(inputs))
        rec("interpreted", fx.Interpreter(traced).run(inputs))


@pytest.mark.parametrize("source", TIMM_UNTRACEABLE)
def test_models_that_torch_fx_cannot_trace(source):
    model = create_without_weights(f"timm:{source}")
    reference = attempt(REFERENCE.fx.symbolic_trace, model)
    subject = attempt(SUBJECT.fx.symbolic_trace, model)
    assert isinstance(reference, Raised), "torch.fx can trace it: move it to TIMM"
    if isinstance(subject, Raised):
        assert _same_exception(reference, subject), f"{reference} became {subject}"


TRANSFORMED = ["torchvision:resnet18", "torchvision:vit_b_32", "torchvision:swin_t"]
TRANSFORMED += ["torchvision:densenet121", "timm:convnext_atto"]

# Models for which torch.fx drops the addition of the positional encoding with all that computes it.
ADDS_POSITIONS_IN_PLACE = {"torchvision:mvit_v1_b", "torchvision:mvit_v2_s"}


@pytest.mark.parametrize("source", quick(TRANSFORMED))
@known_difference(
    "edited",
    reason=WRITES_STAY,
    when=lambda source: source in ADDS_POSITIONS_IN_PLACE,
)
@differential
def test_transforming(fx, rec, source):
    """Retrace, copy, rebuild, eliminate, insert and rename on a real graph."""
    rec.reads_back = True
    traced = fx.symbolic_trace(create_without_weights(source))
    rec("retraced", fx.symbolic_trace(traced))
    rec("copied", copy.deepcopy(traced.graph))
    rec("transformed", fx.Transformer(traced).transform())
    for node in list(traced.graph.nodes):
        if node.op == "call_module" and type(traced.get_submodule(node.target)).__name__ in (
            "Dropout",
            "Identity",
        ):
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
        elif node.op == "call_function" and len(node.users) > 1:
            with traced.graph.inserting_after(node):
                new = traced.graph.call_function(torch.clone, (node,))
            node.replace_all_uses_with(new, lambda user, new=new: user is not new)
    rec("dead", traced.graph.eliminate_dead_code())
    traced.recompile()
    rec("edited", traced)


@pytest.mark.parametrize("source", ["torchvision:resnet18", "torchvision:mobilenet_v3_small"])
@differential
def test_pickling(fx, rec, source):
    traced = fx.symbolic_trace(create(source))
    restored = pickle.loads(pickle.dumps(traced))
    rec("restored", restored)
    with torch.no_grad():
        rec("result", restored(torch.ones(1, 3, 32, 32)))


@differential
def test_replacing_patterns_in_a_model(fx, rec):
    traced = fx.symbolic_trace(create("torchvision:resnet18"))
    pattern = fx.Graph()
    a, b = pattern.placeholder("a"), pattern.placeholder("b")
    pattern.output(pattern.call_function(operator.add, (a, b)))
    replacement = fx.Tracer().trace(lambda a, b: torch.add(a, b, alpha=1))
    found = fx.subgraph_rewriter.replace_pattern_with_filters(traced, pattern, replacement)
    rec("matches", len(found))
    rec("rewritten", traced)
    with torch.no_grad():
        rec("result", traced(torch.ones(1, 3, 32, 32)))
