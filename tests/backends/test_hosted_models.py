"""corsac.compile with backends: their arguments, their results, and fallbacks for declined graphs."""

import copy
import pickle
import threading
import types
import warnings

import pytest
import torch
import torch.fx
from torch import nn

import corsac
import corsac.fx
from corsac import backends
from corsac._models.function import module_of
from corsac.backends import BackendError, Declined, fallback


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)

    def forward(self, x):
        return self.second(self.norm(self.first(x)).relu())


class Recording:
    """A backend that records its arguments."""

    def __init__(self, accepts=None, **attributes):
        self.given = []
        if accepts is not None:
            self.accepts = accepts
        self.__dict__.update(attributes)

    def __call__(self, module, example_inputs):
        self.given.append((module, example_inputs))
        return module.forward


def branches(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def test_a_backend_gets_a_graph_of_corsac_and_example_inputs():
    backend, net, x = Recording(), Net(), torch.randn(4, 5)
    compiled = corsac.compile(net, backend=backend)
    torch.testing.assert_close(compiled(x), copy.deepcopy(net)(x))
    [(module, inputs)] = backend.given
    assert type(module).__mro__[1] is corsac.fx.GraphModule
    assert inputs[0] is x and len(inputs) == 1
    assert isinstance(module.graph.output_node().args[0], tuple)
    assert module.first.weight is net.first.weight
    assert dict(compiled.named_parameters()).keys() == dict(net.named_parameters()).keys()


@pytest.mark.parametrize("function", [torch.sin, branches])
def test_a_backend_that_accepts_torch_fx_gets_that(function):
    backend = Recording(accepts="torch.fx")
    inputs = (torch.randn(3), torch.randn(3)) if function is branches else (torch.randn(3),)
    result = corsac.compile(function, backend=backend)(*inputs)
    torch.testing.assert_close(result, function(*inputs))
    assert backend.given
    for module, _ in backend.given:
        assert isinstance(module, torch.fx.GraphModule)
        assert not isinstance(module, corsac.fx.GraphModule)


def test_a_backend_that_accepts_something_else():
    with pytest.raises(BackendError, match=r"accepts to be 'corsac.fx' or 'torch.fx', got 'onnx'"):
        corsac.compile(torch.sin, backend=Recording(accepts="onnx"))(torch.randn(2))


@pytest.mark.parametrize("name", ["torch:eager", "torch:aot_eager", "aot_eager", "eager"])
def test_backends_train(name):
    eager, x = Net(), torch.randn(4, 5)
    net = copy.deepcopy(eager)
    compiled = corsac.compile(net, backend=name)
    for _ in range(3):
        for model in (eager, compiled):
            model.zero_grad()
            model(x).square().sum().backward()
        with torch.no_grad():
            for own, other in zip(eager.parameters(), net.parameters(), strict=True):
                torch.testing.assert_close(other.grad, own.grad)
                own.sub_(0.1 * own.grad)
                other.sub_(0.1 * other.grad)
    torch.testing.assert_close(net.norm.running_mean, eager.norm.running_mean)
    # The optimiser wrote to weights: nothing is compiled again for that.
    assert len(compiled.graphs) == 1


@pytest.mark.slow
def test_inductor():
    net, x = Net().eval(), torch.randn(4, 5)
    for backend in ("torch:inductor", "inductor"):
        compiled = corsac.compile(net, backend=backend)
        torch.testing.assert_close(compiled(x), net(x))
    options = {"fallback_random": True}
    torch.testing.assert_close(corsac.compile(net, backend="inductor", options=options)(x), net(x))


def test_a_backend_that_copies_weights_is_asked_again():
    for copies, graphs in ((True, 2), (False, 1)):
        backend, net, x = Recording(copies_weights=copies), Net().eval(), torch.randn(4, 5)
        compiled = corsac.compile(net, backend=backend)
        compiled(x)
        with torch.no_grad():
            net.first.weight.mul_(2)
        torch.testing.assert_close(compiled(x), net(x))
        assert len(backend.given) == graphs


def test_a_model_that_changes_is_captured_again():
    backend, net, x = Recording(), Net(), torch.randn(4, 5)
    compiled = corsac.compile(net, backend=backend)
    compiled(x)
    compiled.eval()
    torch.testing.assert_close(compiled(x), net(x))
    net.second = nn.Linear(6, 3)
    assert compiled(x).shape == (4, 3)
    net.first.weight.requires_grad_(False)
    compiled(x)
    assert len(backend.given) == 4


def test_types_and_modes_have_a_graph_each():
    backend = Recording()
    compiled = corsac.compile(lambda x: x + 1, backend=backend)
    x = torch.randn(4, 6)
    for given in (x, x[:2], x.t(), x.double(), x.clone().requires_grad_(), x):
        assert torch.equal(compiled(given), given + 1)
    assert len(backend.given) == 5
    with torch.no_grad():
        assert torch.equal(compiled(x), x + 1)
    assert len(backend.given) == 6


def test_one_tensor_given_twice_is_another_case():
    def both(x, y):
        x.add_(1)
        return x * y

    compiled = corsac.compile(both, backend="aot_eager")
    for same in (True, False, True):
        x = torch.ones(3)
        y = x if same else torch.ones(3)
        expected_x = torch.ones(3)
        expected = both(expected_x, expected_x if same else torch.ones(3))
        assert torch.equal(compiled(x, y), expected) and torch.equal(x, expected_x)


def test_sizes_as_symbols():
    backend = Recording()
    compiled = corsac.compile(lambda x: x.reshape(-1) * x.shape[0], backend=backend, dynamic=True)
    for rows in (2, 3, 7):
        x = torch.randn(rows, 4)
        assert torch.equal(compiled(x), x.reshape(-1) * rows)
    assert len(backend.given) == 1


def test_random_numbers_are_drawn_in_each_call():
    compiled = corsac.compile(lambda x: x + torch.rand(3), backend="eager")
    x = torch.zeros(3)
    assert not torch.equal(compiled(x), compiled(x))
    torch.manual_seed(3)
    found = compiled(x)
    torch.manual_seed(3)
    assert torch.equal(found, torch.rand(3))


def test_results_made_once_are_the_callers():
    compiled = corsac.compile(lambda x: (torch.zeros(3), x + 1), backend="eager")
    first, _ = compiled(torch.ones(3))
    first.add_(5)
    assert torch.equal(compiled(torch.ones(3))[0], torch.zeros(3))


def test_a_decorator_with_and_without_arguments():
    @corsac.compile(backend="eager")
    def one(x):
        return {"y": x + 1}

    @corsac.compile
    def two(x):
        return x * 2

    x = torch.randn(3)
    assert torch.equal(one(x)["y"], x + 1) and torch.equal(two(x), x * 2)
    assert isinstance(one, types.FunctionType) and isinstance(two, types.FunctionType)
    assert isinstance(module_of(one), backends.HostedModule)
    assert one.explain().startswith("graph 0") and one.__name__ == "one"


def test_a_backend_that_declines_leaves_the_graph_to_pytorch():
    def declines(module, example_inputs):
        raise Declined("not today")

    for backend, reason in ((declines, "not today"), (lambda gm, inputs: None, "returned None")):
        for function in (torch.sin, branches):
            inputs = [torch.randn(3)] * (2 if function is branches else 1)
            compiled = corsac.compile(function, backend=backend)
            with pytest.warns(corsac.HostWarning, match=reason):
                assert torch.equal(compiled(*inputs), function(*inputs))
            assert reason in compiled.explain()
            strict = corsac.compile(torch.sin, backend=backend, fullgraph=True)
            with pytest.raises(corsac.CompileError, match=reason):
                strict(torch.randn(3))


@pytest.mark.parametrize("function", [torch.sin, branches])
def test_a_backend_that_fails_is_named(function):
    def broken(module, example_inputs):
        raise KeyError("no such kernel")

    inputs = [torch.randn(3)] * (2 if function is branches else 1)
    with pytest.raises(
        BackendError, match="backend broken failed: KeyError: 'no such kernel'"
    ) as e:
        corsac.compile(function, backend=broken)(*inputs)
    assert isinstance(e.value.__cause__, KeyError)


@pytest.mark.parametrize(
    "answer, message",
    [
        (lambda gm: 3, "expected a callable, got a int"),
        (lambda gm: lambda *args: gm(*args)[0], "expected a tuple of 2 results, got a Tensor"),
        (lambda gm: lambda *args: gm(*args)[:1], "expected 2 results, got 1"),
    ],
)
def test_a_backend_that_answers_something_else_is_named(answer, message):
    def odd(module, example_inputs):
        return answer(module)

    with pytest.raises(BackendError, match=f"backend odd: {message}"):
        corsac.compile(lambda x: (x + 1, x + 2), backend=odd)(torch.randn(3))


def test_programs_that_fail_raise_what_pytorch_raises():
    for backend in ("eager", "aot_eager", "engine", "onnxruntime"):
        compiled = corsac.compile(lambda x, y: x @ y, backend=backend)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(RuntimeError, match=r"mat1 and mat2|cannot be multiplied"):
                compiled(torch.randn(2, 3), torch.randn(4, 5))
            assert compiled(torch.randn(2, 3), torch.randn(3, 5)).shape == (2, 5)


def test_options_reach_the_backend():
    seen = []

    def mine(module, example_inputs, *, options=None):
        seen.append(options)
        return module.forward

    corsac.compile(torch.sin, backend=mine, options={"level": 3})(torch.randn(2))
    assert seen == [{"level": 3}]
    with pytest.raises(ValueError, match="corsac has no option 'level'"):
        corsac.compile(torch.sin, options={"level": 3})
    with pytest.raises(ValueError, match="precision='bf16' is for the engine"):
        corsac.compile(torch.sin, backend="eager", precision="bf16")
    x = torch.randn(2)
    with torch.no_grad():
        result = corsac.compile(lambda x: x.sin() + 1, options={"precision": "f32"})(x) - 1
    torch.testing.assert_close(result, x.sin())


@pytest.mark.parametrize(
    "name, message",
    [
        (
            "engine",
            "corsac has no option 'level'; there are: inference, partition, precision, training",
        ),
        ("onnxruntime", "onnxruntime has no option 'level'; there are: providers, threads"),
        ("openvino", "openvino has no option 'level'; there are: config, device"),
        ("tensorrt", "tensorrt has no option 'level'; there are: config, threads"),
        ("eager", "backend eager takes no options, got 'level'"),
        ("aot_eager", "backend aot_eager takes no options, got 'level'"),
    ],
)
def test_options_that_there_are_not(name, message):
    with pytest.raises((ValueError, BackendError), match=message):
        corsac.compile(torch.sin, backend=name, options={"level": 3})(torch.randn(2))
    if name != "tensorrt":
        corsac.compile(lambda x: x.sin() + 1, backend=name, options={})(torch.randn(2))


@pytest.mark.parametrize("name", ["engine", "onnxruntime", "openvino"])
def test_runtimes_run_graphs_as_backends(name):
    net, x = Net().eval(), torch.randn(4, 5)
    compiled = backends.HostedModule(net, name, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-5, atol=1e-6)
        net.first.weight.mul_(2)
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-5, atol=1e-6)
    (record,) = compiled.graphs[-1:]
    assert record.declined is None and record.programs()


def test_a_graph_may_write_to_what_a_runtime_returned():
    def program(x):
        y = x * 2
        first = y[0]
        if x.sum() > 0:
            first.add_(10)
        return y

    for name in ("onnxruntime", "openvino", "engine"):
        torch._dynamo.reset()
        compiled = backends.HostedModule(program, name)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = torch.ones(2, 3)
            assert torch.equal(compiled(x), program(x))


def test_fallback_lets_dynamo_capture_anew():
    # AOTAutograd needs that once it finds the use of a number.
    def function(x, factor):
        return (x * factor).tanh().view(int(factor), -1)

    backend = fallback(["torch:aot_eager", "eager"])
    compiled, x = corsac.compile(function, backend=backend, dynamic=True), torch.randn(12, 4)
    torch.testing.assert_close(compiled(x, 2.5), function(x, 2.5))
    assert "run by torch:aot_eager" in compiled.explain()
    assert "run by eager" not in compiled.explain()


def test_fallback_records_why_each_declined():
    def broken(module, example_inputs):
        module.graph.erase_node(module.graph.output_node())
        raise OSError("no device\nat all")

    backend = fallback([broken, "tensorrt", "engine", "eager"])
    net, x = Net().eval(), torch.randn(4, 5)
    compiled = corsac.compile(net, backend=backend)
    torch.testing.assert_close(compiled(x), net(x))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-5, atol=1e-6)
    training, inference = compiled.graphs
    assert training.chosen() == inference.chosen() == "engine"
    assert training.refusals()[0] == ("broken", "OSError: no device")
    assert training.refusals()[1] == ("tensorrt", "tensorrt is missing: pip install tensorrt")
    assert len(training.refusals()) == len(inference.refusals()) == 2
    assert "forward: " in str(training)
    with pytest.raises(ValueError, match="at least one backend"):
        fallback([])
    with pytest.raises(TypeError, match="list of backends, got the string 'eager'"):
        fallback("eager")
    with pytest.raises(backends.UnknownBackend):
        fallback(["eager", "nothing of the kind"])
    with pytest.warns(corsac.HostWarning, match="tensorrt: tensorrt is missing"):
        corsac.compile(torch.sin, backend=fallback(["tensorrt"]))(x)


def test_debug_prints_the_table(capsys):
    corsac.compile(lambda x: x.sin() + 1, backend="debug")(torch.randn(2, 3))
    printed = capsys.readouterr().out
    assert printed.startswith("graph of 4 nodes for (float32[2, 3])\n")
    assert "call_method  sin" in printed and "((add,),)" in printed


def test_backends_of_corsac_serve_torch_compile():
    def compiler(module, example_inputs):
        assert isinstance(module, corsac.fx.GraphModule)
        return backends.make_boxed_func(module.forward)

    net, x = Net(), torch.randn(4, 5)
    expected = copy.deepcopy(net)(x)
    for backend in (
        backends.aot_autograd(fw_compiler=compiler),
        fallback(["tensorrt", "eager"]),
        backends.lookup_backend("aot_eager"),
    ):
        torch._dynamo.reset()
        own = copy.deepcopy(net)
        torch.testing.assert_close(torch.compile(own, backend=backend)(x), expected)


def test_compilers_of_aot_autograd_may_return_ordinary_functions():
    seen = []

    def forward(module, example_inputs):
        seen.append("forward")
        return module.forward

    def backward(module, example_inputs):
        seen.append("backward")
        return module.forward

    backend = backends.aot_autograd(fw_compiler=forward, bw_compiler=backward)
    x = torch.randn(3, requires_grad=True)
    corsac.compile(lambda x: x.sin().sum(), backend=backend)(x).backward()
    torch.testing.assert_close(x.grad, x.detach().cos())
    assert seen == ["forward", "backward"]
    with pytest.raises(TypeError, match="fw_compiler: expected a function, got a int"):
        backends.aot_autograd(fw_compiler=3)


def test_weights_are_not_looked_at_while_stand_ins_are_in_their_place():
    model = nn.Linear(3, 3)
    taken, asked = threading.Event(), threading.Event()

    def backend(module, inputs):
        own = model.weight
        model.weight = nn.Parameter(torch.zeros(3, 3))
        taken.set()
        # The other thread is reading the weights, or waiting to.
        asked.wait(0.2)
        model.weight = own
        return module.forward

    compiled = corsac.compile(model, backend=backend)
    x = torch.randn(2, 3)
    results = []

    def call_later():
        taken.wait(10)
        results.append(compiled(x))
        asked.set()

    thread = threading.Thread(target=call_later)
    thread.start()
    results.append(compiled(x))
    thread.join(10)
    assert len(compiled.graphs) == 1
    for found in results:
        torch.testing.assert_close(found, model(x))


def test_threads_compile_once():
    backend = Recording()
    compiled = corsac.compile(lambda x: x * 2 + 1, backend=backend)
    x, results = torch.randn(5), []
    barrier = threading.Barrier(6)

    def call():
        barrier.wait()
        results.append(compiled(x))

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6 and all(torch.equal(own, x * 2 + 1) for own in results)
    assert len(backend.given) == 1


def test_hooks_are_in_graphs_and_containers_go_to_dynamo():
    net, x = Net().eval(), torch.randn(4, 5)
    compiled = corsac.compile(net, backend="eager")
    for factor in (2, 3):
        handle = net.second.register_forward_hook(lambda _, args, result, by=factor: result * by)
        torch.testing.assert_close(compiled(x), net(x))
        handle.remove()
    torch.testing.assert_close(compiled(x), net(x))
    assert [graph.tracer for graph in compiled.graphs] == ["corsac"] * 3
    compiled = corsac.compile(lambda given, scale=2: given["x"] * scale, backend="eager")
    assert torch.equal(compiled({"x": x}), x * 2)
    assert torch.equal(compiled({"x": x}, scale=3), x * 3)
    assert "captured by Dynamo: an argument is a container" in compiled.explain()


def test_hooks_of_all_modules_run_once_for_each():
    net, x, seen = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(2, 3), []
    compiled = corsac.compile(net, backend="eager")
    with nn.modules.module.register_module_forward_hook(lambda own, *_: seen.append(type(own))):
        for number in range(1, 4):
            compiled(x)
            assert seen.count(nn.Sequential) == number and seen.count(nn.ReLU) == number


class Counting:
    """A backend that counts calls of its compiled functions."""

    def __init__(self):
        self.graphs, self.calls = 0, 0

    def __call__(self, module, example_inputs):
        self.graphs += 1

        def run(*args):
            self.calls += 1
            return module(*args)

        return run


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.seen, self.h = 0, [], torch.zeros(3)

    def forward(self, x):
        self.calls += 1
        self.seen.append(x.shape[0])
        self.h = self.h * 0.5 + x
        return self.h * self.calls


def test_state_of_python_goes_on_as_in_eager():
    eager, own, backend = Remembers(), Remembers(), Counting()
    compiled = corsac.compile(own, backend=backend)
    for number in range(8):
        x = torch.full((3,), float(number))
        torch.testing.assert_close(compiled(x), eager(x))
        assert own.calls == eager.calls and own.seen == eager.seen
        assert type(own.h) is torch.Tensor and torch.equal(own.h, eager.h)
    assert backend.calls > 0


def test_first_calls_answer_questions_about_sizes_as_eager_does():
    def program(x):
        named = {x.shape[0]: "rows"}
        asked = (
            f"{x.shape[0]} {tuple(x.shape)}",
            isinstance(x.shape[0], int),
            type(x) is torch.Tensor,
            hasattr(x, "nope"),
            len(str(x.dtype)),
            named.get(4),
            x is x.to(torch.float32),
        )
        return x * 2, asked

    backend = Counting()
    compiled, x = corsac.compile(program, backend=backend), torch.randn(4, 2)
    for _ in range(2):
        result, asked = compiled(x)
        assert torch.equal(result, x * 2) and asked == program(x)[1]
    assert backend.graphs == 1 and backend.calls == 2


def test_a_call_that_changes_something_is_made_once():
    torch.manual_seed(0)
    expected = torch.rand(3), torch.rand(3), torch.rand(3)
    for function, drawn in ((lambda x: x + torch.rand(3), expected), (Remembers(), None)):
        backend = Counting()
        compiled, x = corsac.compile(function, backend=backend), torch.zeros(3)
        torch.manual_seed(0)
        for number in range(3):
            found = compiled(x)
            if drawn is not None:
                assert torch.equal(found, drawn[number])
    net, x = Net(), torch.randn(4, 5)
    copied, backend = copy.deepcopy(net), Counting()
    compiled = corsac.compile(net, backend=backend)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), copied(x))
        torch.testing.assert_close(net.norm.running_mean, copied.norm.running_mean)
    assert backend.graphs == 1 and backend.calls == 2


def test_gradients_reach_leaves_once():
    weight, backend = torch.ones(3, requires_grad=True), Counting()

    def program(x):
        loss = (weight * x).sum()
        if loss > 0:
            loss.backward()
        return loss.detach()

    compiled = corsac.compile(program, backend=backend)
    for number in range(1, 4):
        compiled(torch.ones(3))
        assert torch.equal(weight.grad, torch.full((3,), float(number)))


def test_a_hosted_model_can_be_pickled():
    net, x = Net().eval(), torch.randn(4, 5)
    compiled = corsac.compile(net, backend="aot_eager")
    expected = compiled(x)
    again = pickle.loads(pickle.dumps(compiled))
    torch.testing.assert_close(again(x), expected)
