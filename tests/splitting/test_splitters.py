"""Partitioners, splitters, minimizers and pass managers against torch.fx."""

import contextlib
import io
import operator
import pickle
import random

import pytest
import torch
from torch import nn

from kit.implementations import SUBJECT
from kit.parts import BOTH, Residual, Tuples, calls, described, module_of, random_program


def agree(program):
    """Run ``program(implementation)`` on both; results or exceptions have to be the same."""
    answers = []
    for implementation in BOTH:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                answers.append(program(implementation))
            except Exception as error:
                answers.append(f"raises {type(error).__name__}")
    assert answers[1] == answers[0]
    return answers[1]


def support(implementation, names):
    """Support calls of functions and methods with these names."""

    def is_supported(_, node):
        name = node.target if isinstance(node.target, str) else node.target.__name__
        return node.op.startswith("call_") and name in names

    return module_of(implementation, "passes.operator_support").create_op_support(is_supported)


@pytest.mark.parametrize("seed", range(30))
def test_partitioner(seed):
    dice = random.Random(seed)
    names = dice.sample(["add", "mul", "sigmoid", "relu", "sub", "inner.linear"], 3)
    options = {
        "allows_single_node_partition": seed % 3 == 0,
        "skip_horizontal_fusion": seed % 2 == 0,
    }

    def program(implementation):
        gm = random_program(implementation.fx, seed, length=16)
        partitioner = module_of(implementation, "passes.infra.partitioner")
        partitioner = partitioner.CapabilityBasedPartitioner(
            gm, support(implementation, names), **options
        )
        proposed = partitioner.propose_partitions()
        shown = [(p.id, {str(n): order for n, order in p.nodes.items()}) for p in proposed]
        fused = partitioner.fuse_partitions(proposed)
        return shown, described(fused, implementation.normalise)

    agree(program)


def test_items_go_with_their_tuple():
    def program(implementation):
        gm = implementation.fx.symbolic_trace(Tuples())
        infra = module_of(implementation, "passes.infra.partitioner")
        partitioner = infra.CapabilityBasedPartitioner(
            gm, support(implementation, ["split", "mul", "cat"]), non_compute_ops=["_operator.mul"]
        )
        parts = partitioner.propose_partitions()
        shown = [str(list(part.nodes)) for part in parts]
        partitioner.remove_bookend_non_compute_ops(parts)
        return shown, [str(list(part.nodes)) for part in parts]

    agree(program)


def tagged(implementation, seed, tags):
    gm = random_program(implementation.fx, seed)
    nodes = calls(gm)
    for number, node in enumerate(nodes):
        node.tag = tags[number * len(tags) // len(nodes)]
    return gm


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("return_tuple", [False, True])
def test_tags(seed, return_tuple):
    tags = ["b", "a", "c"]

    def program(implementation):
        gm = tagged(implementation, seed, tags)
        utils = module_of(implementation, "passes.split_utils")
        whole, names = utils.split_by_tags(
            gm, [*tags, "empty"], return_fqn_mapping=True, return_tuple=return_tuple
        )
        parts = [getattr(whole, tag) for tag in tags]
        kept = [str(getattr(n, "tag", None)) for part in parts for n in part.graph.nodes]
        x = torch.ones(2, 4)
        return described(whole, implementation.normalise), names, kept, str(whole(x, x))

    agree(program)


def test_tags_in_the_wrong_order_or_missing():
    def program(implementation, tags):
        gm = tagged(implementation, 3, ["b", "a"])
        return module_of(implementation, "passes.split_utils").split_by_tags(gm, tags)

    agree(lambda i: program(i, ["a", "b"]))
    agree(lambda i: program(i, ["b"]))

    def untagged(implementation):
        gm = random_program(implementation.fx, 3)
        return module_of(implementation, "passes.split_utils").split_by_tags(gm, ["a"])

    assert agree(untagged) == "raises AssertionError"


def splitter(implementation, gm, args, names, **settings):
    base = module_of(implementation, "passes.splitter_base")
    return base._SplitterBase(
        gm, args, support(implementation, names), base._SplitterSettingBase(**settings)
    )


@pytest.mark.parametrize("seed", range(20))
def test_splitter(seed):
    dice = random.Random(seed)
    names = dice.sample(["add", "mul", "sigmoid", "relu", "sub", "inner.linear"], 3)
    settings = {"min_acc_module_size": seed % 3 + 1}

    def program(implementation):
        gm = random_program(implementation.fx, seed, length=16)
        # For a returned input torch.fx splits off an empty submodule.
        args = (torch.ones(2, 4), torch.ones(2, 4))
        split = splitter(implementation, gm, args, names, **settings)
        result = split.generate_split_results()
        inputs = {name: len(args) for name, args in result.submodule_inputs.items()}
        return (
            described(result.split_module, implementation.normalise),
            split.get_node_submodule_map(),
            inputs,
        )

    gm = random_program(SUBJECT.fx, seed, length=16)
    if any(n.op in ("placeholder", "get_attr") for n in gm.graph.output_node().all_input_nodes):
        return
    agree(program)


def test_what_is_no_tensor_stays_together():
    class Model(nn.Module):
        def forward(self, x):
            n = x.size(0)
            y = torch.relu(x)
            z = torch.reshape(y, (n, -1))
            return torch.sigmoid(z) + n

    def program(implementation, names, **settings):
        gm = implementation.fx.symbolic_trace(Model())
        split = splitter(implementation, gm, (torch.ones(2, 4),), names, **settings)
        fusions = {str(n): sorted(map(str, group)) for n, group in split.fusions.items()}
        whole = split()
        return (
            fusions,
            sorted(map(str, split.acc_nodes)),
            described(whole, implementation.normalise),
        )

    for names in (
        ["size", "relu", "reshape"],
        ["size", "relu", "reshape", "sigmoid"],
        ["relu", "reshape", "add"],
    ):
        agree(lambda i, names=names: program(i, names))
        agree(lambda i, names=names: program(i, names, allow_non_tensor=True))
        agree(lambda i, names=names: program(i, names, skip_fusion=True))
        agree(lambda i, n=names: program(i, n, move_non_tensor_nodes_on_boundary=True))


def test_previews():
    def program(implementation):
        gm = implementation.fx.symbolic_trace(Residual())
        split = splitter(implementation, gm, (torch.ones(2, 4),), ["mul", "add"])
        supported = split.node_support_preview()
        return supported, split.split_preview().split("\n\nWhy nodes are where they are")[0]

    agree(program)
    gm = SUBJECT.fx.symbolic_trace(Residual())
    split = splitter(SUBJECT, gm, (torch.ones(2, 4),), ["mul", "add"])
    split()
    reasons = split.explain_placement()
    assert "mul -> _run_on_acc_0: _operator.mul is supported\n" in reasons
    assert "block_0 -> _run_on_cpu_1: torch.nn.modules.linear.Linear is not supported" in reasons
    assert len(reasons.splitlines()) == len(calls(gm))


def test_events():
    def program(implementation):
        base = module_of(implementation, "passes.splitter_base")
        gm = implementation.fx.symbolic_trace(Tuples())
        module_of(implementation, "passes.shape_prop").ShapeProp(gm).propagate(
            torch.ones(2, 4), 2.0
        )
        finder = base.FxNetAccNodesFinder(gm, support(implementation, ["size", "cat"]), False)
        found = sorted(map(str, finder()))
        lines = []
        finder.tracker.print_all(lines.append)
        for node in gm.graph.nodes:
            finder.tracker.print_node(node.name, recursive=True, tab="-", writer=lines.append)
        return found, finder.tracker.to_dict(), lines

    agree(program)


def test_groups_that_would_wait_for_each_other_run_on_the_host():
    class Model(nn.Module):
        def forward(self, x):
            n = x.size(0)
            y = torch.sin(x) + n
            return torch.reshape(y.tanh(), (n, -1)).cos()

    def program(implementation):
        gm = implementation.fx.symbolic_trace(Model())
        names = ["size", "add", "reshape", "cos"]
        whole = splitter(implementation, gm, (torch.ones(2, 4),), names)()
        x = torch.rand(2, 4)
        assert torch.equal(whole(x), Model()(x))
        return described(whole, implementation.normalise)

    agree(program)


def test_fusing_functions():
    def program(implementation):
        gm = random_program(implementation.fx, 5, length=12)
        fuser = module_of(implementation, "passes.utils.fuser_utils")
        nodes = calls(gm)
        answers = [
            [str(n) for n in fuser.topo_sort(nodes[::-1])],
            [fuser.validate_partition(nodes[i : i + 3]) for i in range(9)],
            [fuser.validate_partition([nodes[i], nodes[-1 - i]]) for i in range(6)],
        ]
        fused, inputs, outputs = fuser.fuse_as_graphmodule(
            gm, nodes[2:6], "fused", always_return_tuple=True
        )
        answers += [described(fused, implementation.normalise), str(inputs), str(outputs)]
        fuser.insert_subgm(gm, fused, inputs, outputs)
        return *answers, str(gm.graph)

    agree(program)


def test_orders():
    def program(implementation, sort):
        gm = random_program(implementation.fx, 7)
        first, last = calls(gm)[0], calls(gm)[-1]
        last.append(first)
        tools = module_of(implementation, "passes.tools_common")
        return str(getattr(tools, sort)(gm).graph)

    agree(lambda i: program(i, "stable_topological_sort"))
    agree(lambda i: program(i, "legalize_graph"))

    def cycle(implementation, sort):
        graph = implementation.fx.Graph()
        x = graph.placeholder("x")
        y = graph.call_function(torch.relu, (x,))
        z = graph.call_function(torch.relu, (y,))
        y.args = (z,)
        graph.output(z)
        gm = implementation.fx.GraphModule(nn.Module(), graph)
        return getattr(module_of(implementation, "passes.tools_common"), sort)(gm)

    assert agree(lambda i: cycle(i, "stable_topological_sort")) == "raises AssertionError"
    assert agree(lambda i: cycle(i, "legalize_graph")) == "raises RuntimeError"


def test_shapes_and_sizes():
    def program(implementation):
        gm = implementation.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
        manipulation = module_of(implementation, "passes.graph_manipulation")
        manipulation.get_size_of_all_nodes(gm, [torch.ones(2, 4)])
        shown = [
            (n.name, n.meta["tensor_meta"], n.meta["type"], tuple(getattr(n, "size_bytes", ())))
            for n in gm.graph.nodes
        ]
        assert pickle.loads(pickle.dumps(shown[0][1])) == shown[0][1]
        module_of(implementation, "passes.param_fetch").lift_lowering_attrs_to_nodes(gm)
        fetched = [sorted(n.attrs_for_lowering) for n in calls(gm)]
        manipulation.replace_target_nodes_with(
            gm, "call_module", "1", "call_function", torch.sigmoid
        )
        return shown, fetched, str(gm.graph)

    agree(program)
    from torch._subclasses.fake_tensor import FakeTensorMode

    def fake(implementation):
        gm = implementation.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
        prop = module_of(implementation, "passes.fake_tensor_prop").FakeTensorProp(gm)
        prop.propagate(torch.ones(2, 4))
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        other = implementation.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
        module_of(implementation, "passes.shape_prop").ShapeProp(other, mode).propagate(
            torch.ones(2, 4)
        )
        return [
            (tuple(n.meta["val"].shape), m.meta["tensor_meta"].stride)
            for n, m in zip(gm.graph.nodes, other.graph.nodes, strict=True)
        ]

    agree(fake)


def test_operator_support():
    def program(implementation):
        support = module_of(implementation, "passes.operator_support")
        gm = implementation.fx.symbolic_trace(lambda x, y: torch.add(torch.relu(x), other=y))
        module_of(implementation, "passes.shape_prop").ShapeProp(gm).propagate(
            torch.ones(2), torch.ones(2, dtype=torch.int32)
        )
        tables = [
            {},
            {"torch.relu": None},
            {
                "torch.relu": (([torch.float32],), {}),
                "torch.add": ((None,), {"other": [torch.int32]}),
            },
            {"torch.add": (([torch.int32],), {}), "torch.relu": (([torch.int32],), {})},
        ]
        each = [support.OperatorSupport(table) for table in tables]
        each.append(support.chain(each[1], each[2]))
        each.append(support.any_chain(each[1], each[3]))
        each.append(support.OpSupports.decline_if_input_dtype(torch.int32))
        each.append(support.OpSupports.decline_if_node_in_names({"add"}))
        return [[s.is_node_supported({}, node) for node in gm.graph.nodes] for s in each]

    agree(program)


def test_pass_managers():
    def program(implementation):
        new = module_of(implementation, "passes.infra.pass_manager")
        base = module_of(implementation, "passes.infra.pass_base")
        old = module_of(implementation, "passes.pass_manager")
        log = []

        def a(gm):
            log.append("a")

        def b(gm):
            log.append("b")
            return gm

        class Once(base.PassBase):
            def call(self, graph_module):
                log.append("once")
                return base.PassResult(graph_module, log.count("once") < 2)

        wrapped = [new.pass_result_wrapper(a), new.pass_result_wrapper(b)]
        manager = new.PassManager(
            wrapped, [new.this_before_that_pass_constraint(wrapped[1], wrapped[0])]
        )
        gm = implementation.fx.symbolic_trace(nn.ReLU())
        modified = [manager(gm).modified, new.PassManager([Once()], steps=5)(gm).modified]
        failures = []
        circle = [new.this_before_that_pass_constraint(*pair) for pair in (wrapped, wrapped[::-1])]
        for fails in (
            lambda: new.PassManager([b])(gm),
            lambda: new.PassManager(wrapped, circle)(gm),
            lambda: new.PassManager().add_checks(lambda x, y: None),
            lambda: old.loop_pass(b),
            lambda: old.loop_pass(b, n_iter=0)(gm),
            lambda: old.PassManager(
                [a, b], [old.this_before_that_pass_constraint(b, a)]
            ).validate(),
            lambda: old.PassManager(
                [old.loop_pass(a, 3), b], [old.these_before_those_pass_constraint(b, a)]
            )(gm),
        ):
            try:
                failures.append(str(fails()))
            except Exception as error:
                failures.append(type(error).__name__)
        old_manager = old.PassManager.build_from_passlist(
            [old.inplace_wrapper(a), old.log_hook(b), old.loop_pass(b, 2)]
        )
        old_manager.replace_pass(b, old.inplace_wrapper(a))
        old_manager.add_pass(b)
        assert old_manager(gm) is gm
        old_manager.remove_pass(["a"])
        old_manager(gm)
        return log, modified, failures

    agree(program)


@pytest.mark.parametrize(
    "settings",
    [
        {"traverse_method": "sequential"},
        {"traverse_method": "sequential", "find_all": True},
        {"traverse_method": "binary"},
        {"traverse_method": "accumulate"},
        {"traverse_method": "block"},
        {"traverse_method": "nonsense"},
        {"traverse_method": "sequential", "accumulate_error": True},
    ],
    ids=str,
)
def test_minimizer(settings):
    """The minimizer finds the difference of two executions, one of which computes `cos` wrongly."""

    def program(implementation):
        base = module_of(implementation, "passes.net_min_base")

        class Minimizer(base._MinimizerBase):
            def run_a(self, mod, inputs, report_idx=-1):
                return mod(*inputs)

            def run_b(self, mod, inputs, report_idx=-1):
                wrong = any(node.target is torch.cos for node in mod.graph.nodes)
                result = mod(*inputs)
                return result + 1 if wrong else result

        def compare(a, b, names):
            distance = float((a - b).abs().max())
            return distance, distance < 0.1

        def model(x):
            y = torch.sin(x)
            z = torch.relu(y + x)
            return torch.tanh(torch.cos(z) * y) - x

        gm = implementation.fx.symbolic_trace(model)
        minimizer = Minimizer(gm, (torch.rand(3),), compare, base._MinimizerSettingBase(**settings))
        found = minimizer.minimize(skip_nodes=["mul"])
        results = {str(key): round(value, 3) for key, value in minimizer.results.items()}
        return sorted(map(str, found)), results, minimizer.iteration, len(minimizer.reports)

    agree(program)


def test_minimizer_goes_through_all_stretches():
    """All ranges are covered; torch.fx returns the result of the last range or half, and nothing for ``defined``."""
    base = module_of(SUBJECT, "passes.net_min_base")

    class Minimizer(base._MinimizerBase):
        def run_a(self, mod, inputs, report_idx=-1):
            return mod(*inputs)

        def run_b(self, mod, inputs, report_idx=-1):
            wrong = {torch.sin, torch.tanh} & {node.target for node in mod.graph.nodes}
            return mod(*inputs) + len(wrong)

    def found(**settings):
        gm = SUBJECT.fx.symbolic_trace(lambda x: torch.tanh(torch.relu(torch.sin(x)).cos()))
        minimizer = Minimizer(
            gm,
            (torch.rand(3),),
            lambda a, b, names: (0.0, torch.equal(a, b)),
            base._MinimizerSettingBase(**settings),
        )
        return sorted(map(str, minimizer.minimize(skip_nodes=["relu"])))

    assert found(traverse_method="skip") == ["cos", "sin", "tanh"]
    assert found(traverse_method="binary", find_all=True) == ["sin", "tanh"]
    assert found(traverse_method="defined") == ["cos", "relu", "sin", "tanh"]


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.first = nn.EmbeddingBag(8, 4, mode="sum")
        self.second = nn.EmbeddingBag(8, 4, mode="sum")

    def forward(self, x, i, offsets):
        y = self.first(i, offsets) + self.linear(x)
        return torch.relu(y + self.second(i, offsets))


@pytest.mark.parametrize("memory", [300, 400, 500, 600])
def test_embeddings_get_devices_of_their_own(memory):
    def program(implementation):
        utils = module_of(implementation, "experimental.partitioner_utils")
        torch.manual_seed(0)
        root = Sparse()
        gm = implementation.fx.symbolic_trace(root)
        args = torch.rand(2, 4), torch.tensor([1, 2, 3]), torch.tensor([0, 2])
        manipulation = module_of(implementation, "passes.graph_manipulation")
        manipulation.get_size_of_all_nodes(gm, list(args))
        config = utils.PartitionerConfig(
            [utils.Device(f"d{i}", memory, i) for i in range(3)], utils.PartitionMode.sparse_nn
        )
        partitioner = module_of(
            implementation, "experimental.accelerator_partitioner"
        ).Partitioner()
        dag, whole = partitioner.partition_graph(gm, root, config)
        assert torch.equal(whole(*args), root(*args))
        return [(str(n), n.logical_device_ids, n.size_bytes) for n in dag.nodes]

    agree(program)


@pytest.mark.parametrize("mode", ["size_based", "cost_aware", "aot_based", "kl_based"])
@pytest.mark.parametrize("devices", [(10_000,), (200, 200, 200), (150, 150, 150, 150), (10,), ()])
def test_placement(mode, devices):
    def program(implementation):
        utils = module_of(implementation, "experimental.partitioner_utils")
        torch.manual_seed(0)
        root = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Sigmoid())
        gm = implementation.fx.symbolic_trace(root)
        manipulation = module_of(implementation, "passes.graph_manipulation")
        manipulation.get_size_of_all_nodes(gm, [torch.rand(1, 4)])
        config = utils.PartitionerConfig(
            [utils.Device(f"d{i}", size, i) for i, size in enumerate(devices)],
            utils.PartitionMode[mode],
            transfer_rate_bytes_per_sec=2.0,
            node_to_latency_mapping={n: utils.NodeLatency(1.0, 2.0) for n in gm.graph.nodes},
            node_to_partition_mapping={n: i // 2 for i, n in enumerate(calls(gm))},
            partition_to_logical_device_mapping={0: [0], 1: [1]},
        )
        partitioner = module_of(
            implementation, "experimental.accelerator_partitioner"
        ).Partitioner()
        dag, whole = partitioner.partition_graph(gm, root, config)
        x = torch.ones(1, 4)
        assert torch.equal(whole(x), root(x))
        shown = [
            (str(n), n.logical_device_ids, n.size_bytes, str(n.input_nodes)) for n in dag.nodes
        ]
        return shown if mode != "kl_based" else len(devices)

    agree(program)


@pytest.mark.parametrize("mode", ["size_based", "cost_aware"])
def test_bytes_and_times_of_parts(mode):
    def program(implementation):
        utils = module_of(implementation, "experimental.partitioner_utils")
        torch.manual_seed(0)
        root = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 8), nn.Sigmoid())
        gm = implementation.fx.symbolic_trace(root)
        manipulation = module_of(implementation, "passes.graph_manipulation")
        manipulation.get_size_of_all_nodes(gm, [torch.rand(1, 4)])
        times = {
            n: utils.NodeLatency(0.25 * at, 1.5 - 0.25 * at) for at, n in enumerate(gm.graph.nodes)
        }
        config = utils.PartitionerConfig(
            [utils.Device(f"d{at}", 200, at) for at in range(3)],
            utils.PartitionMode[mode],
            transfer_rate_bytes_per_sec=64.0,
            node_to_latency_mapping=times,
        )
        placement = module_of(implementation, "experimental.accelerator_partitioner")
        partitioner = placement.Partitioner()
        partitioner.partition_graph(gm, root, config)
        parts = partitioner.partitions
        own = utils.get_partition_to_latency_mapping(parts, times)
        return (
            [(part.partition_id, part.used_mem_bytes, tuple(own[part])) for part in parts],
            [[utils.get_comm_latency_between(a, b, 64.0) for a in parts] for b in parts],
            utils.get_latency_of_partitioned_graph(parts, own, 64.0),
        )

    agree(program)


def test_source_partitions():
    def program(implementation):
        gm = implementation.fx.symbolic_trace(Residual())
        for number, node in enumerate(calls(gm)):
            if number % 3 == 0:
                node.meta["source_fn_stack"] = [("add", torch.add)]
            elif number % 3 == 1:
                node.meta["torch_fn"] = (f"relu_{number}", "builtin.relu")
        found = module_of(implementation, "passes.utils.source_matcher_utils")
        parts = found.get_source_partitions(gm.graph, [torch.add, "relu", Residual])
        shown = {
            str(source): [
                str((p.nodes, p.input_nodes, p.output_nodes, p.params)) for p in partitions
            ]
            for source, partitions in parts.items()
        }
        flat = [p for partitions in parts.values() for p in partitions]
        joined = [[found.check_subgraphs_connected(a, b) for a in flat] for b in flat]
        return shown, joined

    agree(program)


def test_comparing_graphs_and_annotations():
    def program(implementation):
        common = module_of(implementation, "passes.utils.common")
        a, b = (random_program(implementation.fx, 5) for _ in range(2))
        c = random_program(implementation.fx, 6)
        graph = implementation.fx.Graph()
        x = graph.placeholder("x", type_expr=tuple[int, str])
        y = graph.placeholder("y", type_expr=list[torch.Tensor])
        for value, index in ((x, 1), (y, 0)):
            graph.call_function(operator.getitem, (value, index))
        module_of(implementation, "passes.annotate_getitem_nodes").annotate_getitem_nodes(graph)
        types = [str(n.type) for n in graph.nodes]
        return (
            common.compare_graphs(a.graph, b.graph),
            common.compare_graphs(a.graph, c.graph),
            types,
        )

    agree(program)


def test_setting_and_getting_attributes():
    def program(implementation):
        utils = module_of(implementation, "passes.split_utils")
        root = nn.Module()
        root.list = nn.ModuleList([nn.Linear(2, 2)])
        utils.setattr_recursive(root, "list.0.bias", None)
        return [
            type(utils.getattr_recursive(root, name)).__name__
            for name in ("list.0", "list.0.weight", "list.0.bias", "list.1", "no.such")
        ]

    agree(program)
