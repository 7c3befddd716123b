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
