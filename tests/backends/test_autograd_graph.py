"""Forward and backward graphs as a function of autograd."""

import pytest
import torch

from corsac._training._autograd_graph import AutogradGraph


def doubled(seen, strides=()):
    """A program whose backward examines the saved tensors and the incoming gradient."""

    def forward(arguments):
        (x,) = arguments
        return [x * 2, x.cos()]

    def make_backward():
        def backward(arguments):
            saved, gradient = arguments
            arguments.clear()
            seen.append((saved._use_count(), gradient.stride()))
            return [gradient * 2]

        return backward

    result = torch.empty_strided((3, 4), strides or (4, 1), requires_grad=True)
    return AutogradGraph(forward, make_backward, [result])


def test_what_was_saved_goes_with_the_last_way_back():
    seen = []
    result = doubled(seen)(torch.randn(3, 4, requires_grad=True))[0]
    result.sum().backward(retain_graph=True)
    result.sum().backward()
    (owners_before, *_), (owners, *_) = seen
    # Only the backward holds it then.
    assert owners == owners_before - 1
    with pytest.raises(RuntimeError, match=r"has already been freed|a second time"):
        result.sum().backward()


@pytest.mark.parametrize("strides", [(4, 1), (1, 3)])
def test_gradients_lie_as_results_do(strides):
    seen = []
    x = torch.randn(3, 4, requires_grad=True)
    result = doubled(seen, strides)(x)[0]
    # An expanded gradient, for which no graph was made.
    result.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3, 4), 2.0))
    assert [own[1] for own in seen] == [strides]


def test_second_derivatives_are_an_error():
    x = torch.randn(3, 4, requires_grad=True)
    result = doubled([])(x)[0]
    (gradient,) = torch.autograd.grad(result.sum(), [x], create_graph=True)
    torch.testing.assert_close(gradient, torch.full((3, 4), 2.0))
    with pytest.raises(RuntimeError, match="second derivatives of a compiled model"):
        gradient.sum().backward()


def test_penalties_of_gradients_are_an_error():
    x = torch.randn(3, 4, requires_grad=True)
    result = doubled([])(x)[0]
    (gradient,) = torch.autograd.grad(result.sum(), [x], create_graph=True)
    # The other term also leads to the input.
    penalised = x.square().sum() + gradient.square().sum()
    with pytest.raises(RuntimeError, match="second derivatives of a compiled model"):
        torch.autograd.grad(penalised, [x])
