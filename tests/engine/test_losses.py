"""Losses: native, and PyTorch's results and errors."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac

REDUCTIONS = ["none", "mean", "sum"]


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def check(function, *inputs):
    compiled = corsac.compile(function, fullgraph=True, options={"inference": "native"})
    with torch.no_grad():
        expected = function(*inputs)
        compiled(*inputs)
        got = compiled(*inputs)
    assert got.dtype is expected.dtype
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    return compiled


X, Y = drawn(4, 5), drawn(4, 5, seed=1)
P, Q = X.sigmoid(), Y.sigmoid()
SIGNS = ((drawn(4, seed=2) > 0) * 2 - 1).long()

ELEMENTWISE = {
    "mse": (F.mse_loss, X, Y),
    "mse_broadcast": (F.mse_loss, X, Y[:1].expand(4, 5)),
    "l1": (F.l1_loss, X, Y),
    "smooth": (F.smooth_l1_loss, X, Y),
    "smooth_beta": (
        lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.3),
        X,
        Y,
    ),
    "smooth_zero": (
        lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.0),
        X,
        Y,
    ),
    "huber": (lambda x, y, reduction: F.huber_loss(x, y, reduction, 0.7), X, Y),
    "soft_margin": (F.soft_margin_loss, X, Y.sign()),
    "bce": (F.binary_cross_entropy, P, Q),
    "bce_bounds": (
        F.binary_cross_entropy,
        torch.tensor([0.0, 1.0, 0.5]),
        torch.tensor([1.0, 0, 1]),
    ),
    "bce_logits": (F.binary_cross_entropy_with_logits, X, Q),
    "kl": (F.kl_div, X, (P > 0.5) * P),
    "kl_log": (lambda x, y, reduction: F.kl_div(x, y, reduction=reduction, log_target=True), X, Y),
    "poisson": (F.poisson_nll_loss, X, P),
    "poisson_eps": (
        lambda x, y, reduction: F.poisson_nll_loss(x, y, False, reduction=reduction),
        P,
        Q,
    ),
    "hinge": (F.hinge_embedding_loss, X, (Y > 0) * 2.0 - 1),
    "hinge_long": (F.hinge_embedding_loss, X, (Y > 0).long() * 2 - 1),
    "cosine": (
        lambda x, y, reduction: F.cosine_embedding_loss(x, y, SIGNS, 0.2, reduction=reduction),
        X,
        Y,
    ),
    "ranking": (
        lambda x, y, reduction: F.margin_ranking_loss(
            x, y, SIGNS[:, None], 0.2, reduction=reduction
        ),
        X,
        Y,
    ),
    "triplet": (
        lambda x, y, reduction: F.triplet_margin_loss(x, y, x - y, swap=True, reduction=reduction),
        X,
        Y,
    ),
    "triplet_p": (
        lambda x, y, reduction: F.triplet_margin_loss(x, y, x - y, 2.0, p=1, reduction=reduction),
        X,
        Y,
    ),
    "multilabel": (F.multilabel_soft_margin_loss, X, Q),
    "strided": (F.mse_loss, X.t(), drawn(10, 4)[::2]),
    "empty": (F.mse_loss, X[:0], Y[:0]),
    "number": (F.l1_loss, X[0, 0], Y[0, 0]),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_losses_of_elements(name, reduction):
    function, x, y = ELEMENTWISE[name]
    check(lambda x, y: function(x, y, reduction=reduction), x, y)


def test_weights_and_means_of_batches():
    weight = torch.rand(5)
    check(lambda x, y: F.binary_cross_entropy(x, y, weight), P, Q)
    check(lambda x, y: F.binary_cross_entropy_with_logits(x, y, weight, pos_weight=weight), X, Q)
    check(lambda x, y: F.multilabel_soft_margin_loss(x, y, weight), X, Q)
    check(lambda x, y: F.kl_div(x, y, reduction="batchmean"), X, P)


def targets(shape, classes, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, classes, shape, generator=generator)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("shape", [(4, 5), (5,), (2, 5, 3), (2, 5, 3, 2)])
def test_cross_entropy(shape, smoothing, weighted, reduction):
    weight = torch.rand(5, generator=torch.Generator().manual_seed(4)) if weighted else None
    options = {"weight": weight, "label_smoothing": smoothing, "reduction": reduction}
    x = drawn(*shape)
    kept = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = targets(kept, 5)
    check(lambda x, t: F.cross_entropy(x, t, **options), x, target)
    check(lambda x, t: F.cross_entropy(x, t, ignore_index=2, **options), x, target)
    check(lambda x, t: F.cross_entropy(x, t, **options), x, drawn(*shape).softmax(0))
    if smoothing == 0:
        options.pop("label_smoothing")
        check(lambda x, t: F.nll_loss(x, t, ignore_index=1, **options), x, target)


def test_modules_and_strides():
    x, target = drawn(3, 7, 5).transpose(1, 2), targets((3, 7), 5)
    check(nn.CrossEntropyLoss(label_smoothing=0.1), x, target)
    check(nn.NLLLoss(reduction="sum"), x.log_softmax(1), target)
    check(nn.BCEWithLogitsLoss(), X, Q)
    check(nn.CosineSimilarity(0), X, Y)
    check(nn.PairwiseDistance(1.0, keepdim=True), X, Y)
    check(lambda x, y: F.cosine_similarity(x[:, None], y[None], dim=-1), X, Y)


def outcome(run, *inputs):
    with torch.no_grad():
        try:
            return run(*inputs)
        except Exception as error:
            return type(error), str(error)


def test_what_pytorch_refuses():
    for function, x, y in (
        (F.binary_cross_entropy, P + 0.9, Q),
        (F.binary_cross_entropy, torch.full((2,), float("nan")), Q[0, :2]),
        (F.cross_entropy, X, torch.tensor([0, 1, 5, 2])),
        (F.nll_loss, X, torch.tensor([0, 1, -1, 2])),
    ):
        compiled = corsac.compile(lambda x, y, f=function: f(x, y), options={"inference": "native"})
        valid = (P, Q) if function is F.binary_cross_entropy else (X, targets((4,), 5))
        with torch.no_grad():
            compiled(*valid)
            compiled(*valid)
        assert outcome(compiled, x, y) == outcome(function, x, y)


def test_everything_is_ignored():
    target = torch.full((4,), -100)
    for smoothing in (0.0, 0.2):
        check(lambda x, t, s=smoothing: F.cross_entropy(x, t, label_smoothing=s), X, target)


def test_saved_losses(tmp_path):
    target = targets((4,), 5)
    path = tmp_path / "loss.safetensors"
    corsac.save(nn.CrossEntropyLoss().eval(), path, (X, target))
    loaded = corsac.load(path, framework="numpy")
    torch.testing.assert_close(
        torch.as_tensor(loaded(X.numpy(), target.numpy())), F.cross_entropy(X, target)
    )


# -- margins of classes, and Gaussian densities ------------------------------------------------

SCORES = drawn(4, 5, seed=5)
NOT_FINITE = SCORES.clone()
NOT_FINITE[0, 1], NOT_FINITE[1, 2], NOT_FINITE[2, 0] = float("nan"), float("inf"), float("-inf")
LABELS = torch.tensor([[3, 0, -1, 1, 2], [-1, 0, 0, 0, 0], [4, 3, 2, 1, 0], [1, 1, 2, -1, -1]])
#: Scores and what is meant of them, as PyTorch takes it.
CLASSES = {
    "rows": (SCORES, torch.tensor([0, 4, 2, 2])),
    "not finite": (NOT_FINITE, torch.tensor([0, 2, 0, 1])),
    "not a class that is finite": (NOT_FINITE, torch.tensor([1, 0, 3, 1])),
    "strided": (drawn(5, 8, seed=5).t()[::2], torch.tensor([3, 1, 0, 2])),
    "one row": (SCORES[:1], torch.tensor([3])),
    "a vector": (SCORES[0], torch.tensor(3)),
    "a vector, one class": (SCORES[0], torch.tensor([3])),
    "one class": (SCORES[:, :1], torch.zeros(4, dtype=torch.int64)),
    "a number": (SCORES[0, 0], torch.tensor(0)),
}
SEVERAL = {
    "rows": (SCORES, LABELS),
    "not finite": (NOT_FINITE, LABELS),
    "strided": (drawn(5, 8, seed=5).t()[::2], LABELS),
    "many classes": (drawn(3, 70), torch.arange(69, -1, -1).remainder(67).sub(1).expand(3, 70)),
    "a vector": (SCORES[0], LABELS[0]),
    "a number": (SCORES[0, 0], torch.tensor(0)),
    "no label": (SCORES[0, :1], torch.tensor([-1])),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", CLASSES)
def test_margins_of_classes(name, reduction):
    x, target = CLASSES[name]
    weight = torch.rand(x.shape[-1] if x.ndim else 1, generator=torch.Generator().manual_seed(6))
    for p, margin, own in itertools.product((1, 2), (1.0, 0.3), (None, weight)):
        options = {"p": p, "margin": margin, "weight": own, "reduction": reduction}
        check(lambda x, t, o=options: F.multi_margin_loss(x, t, **o), x, target)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", SEVERAL)
def test_margins_of_labels(name, reduction):
    x, target = SEVERAL[name]
    check(lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction), x, target)


def test_margins_of_no_rows():
    empty = SCORES[:0]
    check(lambda x, t: F.multi_margin_loss(x, t, reduction="none"), empty, LABELS[:0, 0])
    check(lambda x, t: F.multilabel_margin_loss(x, t, reduction="none"), empty, LABELS[:0])


VARIANCES = {
    "each": P + 0.1,
    "rows": P[:, 0],
    "rows, a column": P[:, :1],
    "columns": P[:1],
    "small": (P > 0.5) * 1.0,
    "nan": P.where(P > 0.3, torch.tensor(float("nan"))),
    "float": 0.3,
    "small float": 0.0,
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", VARIANCES)
def test_gaussian_densities(name, reduction):
    variance = VARIANCES[name]
    for full, eps in ((False, 1e-6), (True, 0.01)):
        options = {"full": full, "eps": eps, "reduction": reduction}
        if isinstance(variance, float):
            check(lambda x, y, o=options: F.gaussian_nll_loss(x, y, variance, **o), X, Y)
        else:
            check(lambda x, y, v, o=options: F.gaussian_nll_loss(x, y, v, **o), X, Y, variance)
            check(lambda x, y, v, o=options: F.gaussian_nll_loss(x, y[0], v, **o), X, Y, variance)


def distance(a, b):
    return (a - b).abs().amax(-1)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("swap", [False, True])
def test_triplets_by_a_distance(swap, reduction):
    options = {"margin": 0.7, "swap": swap, "reduction": reduction}

    def by_default(x, y):
        return F.triplet_margin_with_distance_loss(x, y, x - y, **options)

    def by_function(x, y):
        return F.triplet_margin_with_distance_loss(
            x, y, x - y, distance_function=distance, **options
        )

    check(by_default, X, Y)
    check(by_function, X, Y)
    module = nn.TripletMarginWithDistanceLoss(
        distance_function=lambda a, b: 1 - F.cosine_similarity(a, b), **options
    )
    check(lambda x, y: module(x, y, x - y), X, Y)
    module = nn.TripletMarginWithDistanceLoss(
        distance_function=nn.PairwiseDistance(p=1.0), **options
    )
    check(lambda x, y: module(x, y, x - y), X, Y)


#: Modules with settings that are not the defaults, and inputs.
MODULES = {
    "l1": (nn.L1Loss(), X, Y),
    "mse": (nn.MSELoss(reduction="sum"), X, Y),
    "ranking": (nn.MarginRankingLoss(0.2), X[:, 0], Y[:, 0], SIGNS),
    "hinge": (nn.HingeEmbeddingLoss(0.5), X, (Y > 0) * 2.0 - 1),
    "cosine": (nn.CosineEmbeddingLoss(0.3, reduction="sum"), X, Y, SIGNS),
    "triplet": (nn.TripletMarginLoss(0.5, p=1, swap=True, reduction="none"), X, Y, X * Y),
    "distance": (nn.TripletMarginWithDistanceLoss(margin=0.5), X, Y, X * Y),
    "multi margin": (nn.MultiMarginLoss(2, 0.5, torch.arange(5.0)), *CLASSES["rows"]),
    "labels": (nn.MultiLabelMarginLoss(reduction="sum"), SCORES, LABELS),
    "soft labels": (nn.MultiLabelSoftMarginLoss(torch.arange(5.0)), X, Q),
    "poisson": (nn.PoissonNLLLoss(log_input=False, eps=0.1), P, Q),
    "gaussian": (nn.GaussianNLLLoss(full=True, eps=0.2), X, Y, P),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_with_settings(name, tmp_path):
    module, *inputs = MODULES[name]
    check(module, *inputs)
    expected = module(*inputs)

    class Traced(nn.Module):
        def __init__(self):
            super().__init__()
            self.loss = module

        def forward(self, a, b, c=None):
            return self.loss(a, b) if len(inputs) == 2 else self.loss(a, b, c)

    # A tracer leaves modules of PyTorch as they are.
    traced = corsac.fx.symbolic_trace(
        Traced().eval(), concrete_args={"c": None} if len(inputs) == 2 else None
    )
    lowered = corsac.lower(traced, "corsac", inputs, min_nodes=1)
    torch.testing.assert_close(lowered(*inputs), expected)
    path = tmp_path / "loss.safetensors"
    corsac.save(module.eval(), path, tuple(inputs))
    loaded = corsac.load(path, framework="numpy")
    got = torch.as_tensor(loaded(*(own.numpy() for own in inputs)))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_margins_and_variances_that_pytorch_refuses():
    below, above = LABELS.clone(), LABELS.clone()
    below[0, 4], above[0, 4] = -2, 5
    for function, valid, wrong in (
        (F.multi_margin_loss, CLASSES["rows"], (SCORES, torch.tensor([0, 5, 1, 1]))),
        (F.multi_margin_loss, CLASSES["rows"], (SCORES, torch.tensor([0, -1, 1, 1]))),
        (F.multilabel_margin_loss, (SCORES, LABELS), (SCORES, below)),
        (F.multilabel_margin_loss, (SCORES, LABELS), (SCORES, above)),
        (F.gaussian_nll_loss, (X, Y, P), (X, Y, -P)),
        (F.gaussian_nll_loss, (X, Y, P), (X, Y, P - 2 * P[0])),
    ):
        compiled = check(function, *valid)
        assert isinstance(outcome(function, *wrong), tuple)
        assert outcome(compiled, *wrong) == outcome(function, *wrong)
    for wrong in (-0.5, 1, P[:, :2], P[0, :3]):
        compiled = corsac.compile(lambda x, y, v=wrong: F.gaussian_nll_loss(x, y, v))
        eager = outcome(lambda x, y, v=wrong: F.gaussian_nll_loss(x, y, v), X, Y)
        assert isinstance(eager, tuple)
        assert [outcome(compiled, X, Y) for _ in range(3)] == [eager] * 3


def test_losses_of_types_that_are_not_native():
    for function, *inputs in (
        (F.multi_margin_loss, SCORES.double(), CLASSES["rows"][1]),
        (F.multilabel_margin_loss, SCORES.double(), LABELS),
        (F.gaussian_nll_loss, X.double(), Y.double(), P.double()),
        (F.gaussian_nll_loss, X, Y, P.double()),
        (F.gaussian_nll_loss, X, LABELS, P),
    ):
        compiled = corsac.compile(function)
        with torch.no_grad():
            for _ in range(3):
                torch.testing.assert_close(compiled(*inputs), function(*inputs))


TRAINED = {
    "multi margin": (F.multi_margin_loss, *CLASSES["rows"]),
    "labels": (F.multilabel_margin_loss, SCORES, LABELS),
    "gaussian": (F.gaussian_nll_loss, X, Y, P),
    "gaussian of a number": (lambda x, y: F.gaussian_nll_loss(x, y, 0.5), X, Y),
    "triplet": (F.triplet_margin_with_distance_loss, X, Y, X * Y),
    "distance": (
        lambda x, y: F.triplet_margin_with_distance_loss(x, y, x * y, distance_function=distance),
        X,
        Y,
    ),
}


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_losses(name):
    function, *inputs = TRAINED[name]

    def step(run):
        own = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
        loss = run(*own)
        (loss * 2).backward()
        return loss.detach(), [x.grad for x in own]

    compiled = corsac.compile(function)
    for _ in range(4):
        torch.testing.assert_close(step(compiled), step(function))


def lerps():
    for a, b, w in itertools.product(((4, 5), (5,)), ((4, 5), (4, 1)), ((4, 5), (), (1, 5))):
        yield drawn(*a), drawn(*b, seed=1), drawn(*w, seed=2)


def test_lerp_by_a_tensor():
    for a, b, w in lerps():
        check(torch.lerp, a, b, w)
        check(lambda a, b, w: torch.lerp(a, b, 0.3), a, b, w)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_padding_by_own_elements(mode, dims):
    for widths in ([1, 2] * dims, [2, 0] * dims, [0, 0] * dims, [2, 1, 0, 1, 1, 0][: 2 * dims]):
        for batch in ((2, 3), (3,)):
            x = drawn(*batch, 5, 4, 3)[(..., *[0] * (3 - dims))]
            check(lambda x, w=widths: F.pad(x, w, mode=mode) + 1, x)
    x = (drawn(2, 3, 4) * 5).long()
    if dims == 1:
        check(lambda x: F.pad(x.transpose(1, 2), [1, 1], mode=mode) + 1, x)
        check(lambda x: F.pad(x.float(), [1, 1], mode=mode), x)


def test_padding_that_pytorch_refuses():
    compiled = corsac.compile(lambda x: F.pad(x, [4, 0], mode="reflect"))
    with torch.no_grad(), pytest.raises(RuntimeError, match="Padding size"):
        compiled(drawn(2, 3, 4))


def test_windows():
    for x in (drawn(2, 3, 6, 7), drawn(3, 6, 7), drawn(2, 3, 7, 6).transpose(2, 3)):
        check(lambda x: F.unfold(x, 3), x)
        check(lambda x: F.unfold(x, (2, 3), dilation=(1, 2), padding=(1, 0), stride=(2, 1)), x)
        check(lambda x: x.unfold(-1, 3, 2) * 2, x)
        check(lambda x: x.unfold(1, 2, 1) * 2, x)
