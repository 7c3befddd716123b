"""Declared effects of operators are true, checked with PyTorch's own sample inputs."""

import collections
import inspect

import pytest
import torch
import torch.utils._pytree as pytree
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

import corsac.fx
from corsac.passes import effects

ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def tensors(value):
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def storage(tensor):
    """The storage of a tensor; None if it is empty, or has no single storage."""
    if tensor.layout != torch.strided or tensor.untyped_storage().nbytes() == 0:
        return None
    return tensor.untyped_storage().data_ptr()


def image(tensor):
    """All observable properties of a tensor."""
    if tensor.layout != torch.strided:
        return None
    tensor = tensor.detach().resolve_conj().resolve_neg()
    data = tensor.contiguous().view(-1).view(torch.uint8) if tensor.numel() else tensor
    return tensor.shape, tensor.stride(), tensor.dtype, data.numpy().tobytes()


class Judge:
    """Compares the effects of a call with those declared for its node."""

    def __init__(self):
        self.calls = 0
        self.wrong = collections.defaultdict(set)

    def call(self, label, run, node_of, args, kwargs):
        """Call ``run`` and compare; ``node_of(graph, args, kwargs)`` makes the node."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        inputs = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        before = {i: image(leaves[i]) for i in inputs}
        seed = torch.get_rng_state()
        result = run(*args, **kwargs)
        graph = corsac.fx.Graph()
        names = {i: graph.placeholder(f"x{i}") for i in inputs}
        symbols = [names.get(i, leaf) for i, leaf in enumerate(leaves)]
        said = effects(node_of(graph, *pytree.tree_unflatten(symbols, spec)))
        self.calls += 1
        if said.opaque:
            return result
        if not torch.equal(seed, torch.get_rng_state()) and not said.random:
            self.wrong[label].add("uses random numbers")
        held = [storage(own) for own in set(tensors(result)) if storage(own) is not None]
        shared = set(held)
        computes = not (said.mutates or said.aliases or said.side_effect or said.writes_state)
        if computes and len(held) != len(shared):
            self.wrong[label].add("results share memory")
        # Arguments may share storage with each other: effects on one apply to the others.
        said_written = {storage(leaves[i]) for i in inputs if names[i] in said.mutates}
        said_shared = {storage(leaves[i]) for i in inputs if names[i] in said.aliases}

        def said_of(i):
            return any(leaves[i] is leaves[j] and names[j] in said.aliases for j in inputs)

        for i in inputs:
            written = names[i] in said.mutates or storage(leaves[i]) in said_written - {None}
            if image(leaves[i]) != before[i] and not written:
                self.wrong[label].add(f"writes to argument {i}")
            # An empty tensor shares no bytes, but may be the argument itself.
            same = any(tensor is leaves[i] for tensor in tensors(result))
            if storage(leaves[i]) in shared - said_shared or (same and not said_of(i)):
                self.wrong[label].add(f"shares argument {i}")
        return result


class Overloads(TorchDispatchMode):
    """Checks every operator called underneath."""

    def __init__(self, judge):
        super().__init__()
        self.judge = judge

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        def node_of(graph, args, kwargs):
            return graph.call_function(func, args, kwargs)

        return self.judge.call(str(func), func, node_of, args, kwargs or {})


def samples(op, most):
    dtypes = op.supported_dtypes("cpu")
    if not dtypes:
        return []
    dtype = torch.float32 if torch.float32 in dtypes else min(dtypes, key=str)
    try:
        return list(op.sample_inputs("cpu", dtype, requires_grad=False))[:most]
    except (RuntimeError, ImportError):
        return []


def own(sample):
    """Arguments that share no storage."""
    args, kwargs = (sample.input, *sample.args), sample.kwargs
    return pytree.tree_map_only(
        torch.Tensor,
        lambda t: t.detach().clone() if t.layout == torch.strided else t,
        (args, kwargs),
    )


def variants(op, sample):
    yield op.op, None
    if isinstance(sample.input, torch.Tensor):
        for variant in (op.method_variant, op.inplace_variant):
            name = getattr(variant, "__name__", "<lambda>")
            if name.isidentifier():
                yield variant, name


def judge_all(ops, most, samples=samples):
    judge = Judge()
    for op in ops:
        for sample in samples(op, most):
            for function, method in variants(op, sample):

                def node_of(graph, args, kwargs, function=function, method=method):
                    if method is None:
                        return graph.call_function(function, args, kwargs)
                    return graph.call_method(method, args, kwargs)

                args, kwargs = own(sample)
                try:
                    with torch.no_grad():
                        judge.call(f"{method or op.name}", function, node_of, args, kwargs)
                    args, kwargs = own(sample)
                    with torch.no_grad(), Overloads(judge):
                        function(*args, **kwargs)
                # Samples that a variant does not accept, and missing devices.
                except Exception:
                    continue
    return judge


def neutral(value):
    """Values of an argument for which there is nothing to do: a rate of zero, a factor of one."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield type(value)(0)
        yield type(value)(1)
    elif isinstance(value, (tuple, list)) and value:
        for one in neutral(value[0]) if isinstance(value[0], (int, float)) else ():
            yield type(value)(one for _ in value)
    elif isinstance(value, torch.dtype):
        yield torch.float32


def neutral_samples(op, most):
    """Samples with one setting changed so that the input may be returned unchanged."""
    for sample in samples(op, most):
        yield sample
        settings = dict(sample.kwargs)
        try:
            parameters = inspect.signature(op.op).parameters.values()
        except (TypeError, ValueError):
            parameters = ()
        taken = 1 + len(sample.args)
        for parameter in list(parameters)[taken:]:
            if parameter.default not in (parameter.empty, None):
                settings.setdefault(parameter.name, parameter.default)
        for name, value in settings.items():
            for other in neutral(value):
                yield type(sample)(
                    sample.input, args=sample.args, kwargs=sample.kwargs | {name: other}
                )
        for place, value in enumerate(sample.args):
            for other in neutral(value):
                args = (*sample.args[:place], other, *sample.args[place + 1 :])
                yield type(sample)(sample.input, args=args, kwargs=sample.kwargs)
        if isinstance(sample.input, torch.Tensor):
            for shape in ((), (1,), (1, 1), (0,), (0, 3)):
                like = torch.ones(shape, dtype=sample.input.dtype)
                yield type(sample)(like, args=sample.args, kwargs=sample.kwargs)


def check(judge, at_least):
    assert {label: sorted(wrong) for label, wrong in judge.wrong.items()} == {}
    assert judge.calls > at_least


def test_some_operators():
    check(judge_all(op_db[::12], 3), 300)


@pytest.mark.slow
def test_all_operators():
    check(judge_all(op_db, 12), 15_000)


#: Operators for which PyTorch itself crashes with changed settings.
CRASHES = ("_segment_reduce",)


def unusual(ops, most):
    return judge_all([op for op in ops if op.name not in CRASHES], most, neutral_samples)


def test_some_operators_where_there_is_nothing_to_do():
    dropouts = [op for op in op_db if "dropout" in op.name]
    assert len(dropouts) > 3
    check(unusual(op_db[5::12] + dropouts, 2), 1000)


@pytest.mark.slow
def test_all_operators_where_there_is_nothing_to_do():
    check(unusual(op_db, 6), 50_000)


def module_calls(infos):
    """Modules of torch.nn with sample inputs, in training and evaluation, also with p = 0."""
    for info in infos:
        # A lazy module changes once it has run.
        if "Lazy" in info.module_cls.__name__:
            continue
        for training in (True, False):
            for sample in info.module_inputs_func(info, "cpu", torch.float32, False, training):
                module, inputs = sample.constructor_input, sample.forward_input
                if inputs is None:
                    continue
                try:
                    module = info.module_cls(*module.args, **module.kwargs)
                except (TypeError, RuntimeError, ValueError):
                    continue
                for rate in (None, 0.0) if isinstance(vars(module).get("p"), float) else (None,):
                    if rate is not None:
                        module.p = rate
                    module.train(training)
                    yield module, inputs.args, inputs.kwargs


def judge_modules(infos):
    judge = Judge()
    for module, args, kwargs in module_calls(infos):
        root = torch.nn.Module()
        root.called = module

        def node_of(graph, args, kwargs, root=root):
            node = graph.call_module("called", args, kwargs)
            corsac.fx.GraphModule(root, graph)
            return node

        args, kwargs = pytree.tree_map_only(
            torch.Tensor, lambda t: t.detach().clone(), (args, kwargs)
        )
        with torch.no_grad():
            try:
                judge.call(type(module).__name__, module, node_of, args, kwargs)
            except (RuntimeError, NotImplementedError):
                continue
    return judge


def test_modules():
    from torch.testing._internal.common_modules import module_db

    check(judge_modules(module_db), 300)


def node(target, *args, **kwargs):
    graph = corsac.fx.Graph()
    inputs = [graph.placeholder(f"x{i}") if arg is None else arg for i, arg in enumerate(args)]
    create = graph.call_method if isinstance(target, str) else graph.call_function
    return inputs, create(target, tuple(inputs), kwargs)


F = torch.nn.functional


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "mutates", "aliases", "random"),
    [
        ("add_", (None, 1), {}, [0], [0], False),
        ("never_heard_of_", (None, None), {}, [0], [0, 1], False),
        (torch.Tensor.add_, (None, 1), {}, [0], [0], False),
        (torch.ops.aten.add_.Tensor, (None, None), {}, [0], [0], False),
        (torch.ops.aten.split.Tensor, (None, 2), {}, [], [0], False),
        (torch.ops.aten.bernoulli.default, (None,), {}, [], [], True),
        (F.relu, (None,), {}, [], [], False),
        (F.relu, (None, True), {}, [0], [0], False),
        (F.relu, (None,), {"inplace": True}, [0], [0], False),
        (F.dropout, (None, 0.5, False), {}, [], [0], False),
        # The input itself where `p` is 0, or the input is empty.
        (F.dropout, (None, 0.5), {}, [], [0], True),
        (F.dropout, (None, 0.5), {"inplace": True}, [0], [0], True),
        (F.alpha_dropout, (None,), {}, [], [0], False),
        (torch.native_dropout, (None, 0.5, True), {}, [], [0], True),
        (torch.einsum, ("ij->ji", None), {}, [], [1], False),
        (torch._foreach_add_, (None, 1), {}, [0], [0], False),
        (F.batch_norm, (None, None, None), {}, [], [], False),
        (F.batch_norm, (None, None, None), {"training": True}, [1, 2], [], False),
        (torch.batch_norm, (None, 1, 1, None, None, True), {}, [3, 4], [], False),
        (F.embedding, (None, None, 0, 1.0), {}, [1], [], False),
        (F.scaled_dot_product_attention, (None, None, None), {}, [], [], False),
        (F.scaled_dot_product_attention, (None, None, None, 0, 0.5), {}, [], [], True),
        (ATTENTION, (None, None, None), {}, [], [], False),
        (ATTENTION, (None, None, None, 0.0), {}, [], [], False),
        (ATTENTION, (None, None, None, 0.5), {}, [], [], True),
        (getattr, (None, "shape"), {}, [], [0], False),
    ],
)
def test_calls(target, args, kwargs, mutates, aliases, random):
    inputs, call = node(target, *args, **kwargs)
    said = effects(call)
    assert said.mutates == [inputs[i] for i in mutates]
    assert said.aliases == [inputs[i] for i in aliases]
    assert said.random is random
    assert not said.opaque and not said.side_effect


@pytest.mark.parametrize("target", [print, torch._assert, torch._C._set_grad_enabled])
def test_side_effects(target):
    _, call = node(target, True)
    assert effects(call).side_effect


def test_what_is_given_as_out_is_written_to():
    (x,), _ = node("neg", None)
    out = x.graph.placeholder("out")
    call = x.graph.call_function(torch.max, (x, 0), {"out": (out, out)})
    assert effects(call).mutates == [out]


def test_the_first_argument_may_be_given_by_name():
    (x,), _ = node("neg", None)
    call = x.graph.call_function(torch.split, (), {"tensor": x, "split_size_or_sections": 2})
    assert effects(call).aliases == [x]
