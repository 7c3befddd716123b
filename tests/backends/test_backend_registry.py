"""Backends by name: registering, listing, looking up, entry points, the default."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

import corsac
from corsac import backends


@pytest.fixture
def registered():
    """Unregisters the backends of a test."""
    names = []
    yield names
    for name in names:
        backends.unregister_backend(name)


def test_three_ways_to_register(registered):
    @backends.register_backend
    def first_way(module, example_inputs):
        return module.forward

    @backends.register_backend(name="second way", tags=("experimental",))
    def other(module, example_inputs):
        return module.forward

    assert backends.register_backend(lambda gm, inputs: gm.forward, name="third way")
    registered += ["first_way", "second way", "third way"]
    assert backends.lookup_backend("first_way") is first_way
    assert backends.lookup_backend("second way") is other
    assert {"first_way", "third way"} <= set(backends.list_backends())
    assert "second way" not in backends.list_backends()
    assert "second way" in backends.list_backends(exclude_tags=("debug",))
    x = torch.randn(3)
    assert torch.equal(corsac.compile(torch.sin, backend="third way")(x), x.sin())


def test_what_cannot_be_registered(registered):
    with pytest.raises(ValueError, match="there is a backend 'engine'"):
        backends.register_backend(lambda gm, inputs: gm.forward, name="engine")
    with pytest.raises(ValueError, match="torch: is PyTorch's"):
        backends.register_backend(lambda gm, inputs: gm.forward, name="torch:mine")
    with pytest.raises(TypeError, match="can be called, got a int"):
        backends.register_backend(3, name="three")
    backends.register_backend(lambda gm, inputs: gm.forward, name="once")
    registered.append("once")
    with pytest.raises(ValueError, match="there is a backend 'once'"):
        backends.register_backend(lambda gm, inputs: gm.forward, name="once")
    with pytest.raises(backends.UnknownBackend, match="no backend 'never' was registered"):
        backends.unregister_backend("never")


def test_built_in_backends_are_listed_by_tag():
    usual = backends.list_backends()
    assert {"engine", "onnxruntime", "openvino", "torch:inductor"} <= set(usual)
    assert not {"eager", "debug", "aot_eager", "torch:eager"} & set(usual)
    every = backends.list_backends(exclude_tags=())
    assert {"eager", "debug", "aot_eager", "torch:eager", "torch:aot_eager"} <= set(every)
    assert every == sorted(every) and "torch:corsac" not in every


@pytest.mark.parametrize(
    "name, parts",
    [
        ("onnxruntme", ["'onnxruntme', did you mean onnxruntime?", "pip install onnx onnxruntime"]),
        ("hidet", ["to get hidet: pip install hidet"]),
        ("inductr", ["did you mean torch:inductor?"]),
        ("torch:nothing", ["there is no backend 'torch:nothing'; there are: aot_eager, debug"]),
    ],
)
def test_unknown_names_say_what_there_is(name, parts):
    with pytest.raises(backends.UnknownBackend) as caught:
        corsac.compile(torch.sin, backend=name)
    for part in [*parts, "engine", "list_backends(exclude_tags=())"]:
        assert part in str(caught.value)


def test_names_of_torch_are_found_without_prefix():
    assert backends.lookup_backend("inductor").name == "torch:inductor"
    assert backends.lookup_backend("torch:eager").name == "torch:eager"
    assert backends.lookup_backend("eager").__module__ == "corsac.backends._eager"
    with pytest.raises(TypeError, match="name of a backend or a function, got a int"):
        backends.lookup_backend(3)


def test_the_default_backend_can_be_set():
    seen = []

    def mine(module, example_inputs):
        seen.append(module)
        return module.forward

    assert backends.get_default_backend() == "engine"
    try:
        backends.set_default_backend(mine)
        assert backends.get_default_backend() is mine
        corsac.compile(torch.sin)(torch.randn(2))
        with pytest.raises(backends.UnknownBackend):
            backends.set_default_backend("never heard of")
        assert backends.get_default_backend() is mine
    finally:
        backends.set_default_backend(None)
    assert len(seen) == 1 and backends.get_default_backend() == "engine"


def test_an_installed_package_brings_a_backend(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "doubling.py").write_text(
        textwrap.dedent(
            """
            def backend(module, example_inputs):
                return lambda *args: tuple(2 * own for own in module(*args))
            """
        )
    )
    (source / "pyproject.toml").write_text(
        textwrap.dedent(
            """
            [build-system]
            requires = ["setuptools"]
            build-backend = "setuptools.build_meta"

            [project]
            name = "corsac-doubling"
            version = "1.0"

            [project.entry-points.corsac_backends]
            doubling = "doubling:backend"

            [tool.setuptools]
            py-modules = ["doubling"]
            """
        )
    )
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    install += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(target)]
    subprocess.run([*install, str(source)], check=True, capture_output=True, timeout=300)
    program = textwrap.dedent(
        """
        import torch, corsac
        from corsac.backends import list_backends, lookup_backend
        assert "doubling" in list_backends()
        assert lookup_backend("doubling").__module__ == "doubling"
        print(corsac.compile(lambda x: x + 1, backend="doubling")(torch.ones(2)).tolist())
        """
    )
    path = os.pathsep.join([str(target), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.stdout, done.returncode) == ("[4.0, 4.0]\n", 0), done.stderr
