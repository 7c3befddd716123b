"""Results share memory with an input if eager's do, whatever else the program computes."""

import pytest
import torch
import torch.nn.functional as F

import corsac

pytestmark = [
    pytest.mark.recording,
    pytest.mark.filterwarnings("ignore::corsac.HostWarning"),
]

#: Possible views of ``z``, or ``z`` itself; ``x`` is unrelated.
VIEWS = {
    "grids": lambda z, x: torch.meshgrid(z.flatten(), z[0] * 1, indexing="ij"),
    "a part of a grid": lambda z, x: [torch.meshgrid(z.flatten(), x, indexing="xy")[0][1:]],
    "broadcast": lambda z, x: torch.broadcast_tensors(z, x[:, None, None] * 1),
    "at least": lambda z, x: [torch.atleast_2d(z), torch.atleast_3d(z)],
    "expanded": lambda z, x: [z.expand_as(torch.zeros(2, 3, 4)), torch.movedim(z, 0, 1)],
    "products": lambda z, x: [torch.block_diag(z), torch.cartesian_prod(z[0])],
    "split": lambda z, x: [torch.tensor_split(z, 2)[0], z.hsplit(2)[1], z.vsplit(3)[0]],
    "turned": lambda z, x: [z.swapaxes(0, 1), z.mT, z.H, z.permute(1, 0), z.unflatten(1, (2, 2))],
    "unfolded": lambda z, x: [z.unfold(1, 2, 1), z.diagonal(), z.narrow(0, 1, 1), z.squeeze()],
    "complex": lambda z, x: [torch.view_as_real(torch.view_as_complex(z.view(3, 2, 2))), z.real],
    "types": lambda z, x: [z.type_as(x), z.to(x), z.contiguous(), z.float(), z.cpu(), z.positive()],
    "nothing": lambda z, x: [F.dropout(z, 0.5, False), F.pad(z, (0, 0)), z.resolve_conj()],
    "copies": lambda z, x: [torch.nan_to_num(z), z.masked_fill(z > 9, 0), z.roll(0), z.flip(0)],
    "forms": lambda z, x: [z.reshape(12), z.ravel(), z.view_as(z), torch.rot90(z), z.tile(1, 1)],
    "einsum": lambda z, x: [
        torch.einsum("ij->ji", z),
        torch.einsum("ij->ij", z),
        torch.einsum("ij->i", z),
        torch.einsum("ii->i", z[:, :3]),
        torch.einsum("ij,i->ij", z, x),
    ],
    "joined": lambda z, x: [torch.cat([z]), torch.stack([z])[0], torch.hstack([z]), z.sum(())],
}


@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.parametrize("options", [{"inference": "native"}, None], ids=["native", "measured"])
@pytest.mark.parametrize("name", VIEWS)
def test_results_lie_where_those_of_eager_do(name, options, decides):
    function = VIEWS[name]
    passed = []

    def program(z, x):
        views = function(z, x)
        if decides and x.sum() > 0:
            passed.append(1)
        return [*views, x * 2]

    torch._dynamo.reset()
    compiled = corsac.compile(program, options=options)
    torch.manual_seed(0)
    with torch.no_grad():
        for _ in range(6):
            z, x = torch.randn(3, 4), torch.randn(3)
            results, expected = compiled(z, x), program(z, x)
            for own, other in zip(results, expected, strict=True):
                torch.testing.assert_close(own, other)
            place = z.untyped_storage().data_ptr()
            found, wanted = (
                [own.untyped_storage().data_ptr() == place for own in values]
                for values in (results, expected)
            )
            assert found == wanted


@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.unsqueeze_(0)])
def test_inputs_that_lie_otherwise_afterwards(change):
    def program(x):
        change(x)
        return x * 1 if x.sum() > 0 else x * 2

    compiled = corsac.compile(program)
    with torch.no_grad():
        for number in range(4):
            x = torch.full((3, 4), float(number) - 1.5)
            other = x.clone()
            found, expected = compiled(x), program(other)
            assert torch.equal(found, expected) and torch.equal(x, other)
            assert x.stride() == other.stride()


def test_sparse_tensors_that_lie_otherwise_afterwards():
    def program(x):
        sparse = x.to_sparse()
        sparse.t_()
        if x.sum() > 0:
            sparse.mul_(2)
        return sparse.to_dense()

    compiled = corsac.compile(program)
    with torch.no_grad():
        for number in range(4):
            x = torch.full((3, 4), float(number) - 1.5)
            assert torch.equal(compiled(x), program(x))
