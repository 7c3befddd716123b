"""The page of examples/web in headless Chromium: a dropped model and image are classified as by native programs."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy
import pytest
import torch
from PIL import Image

import corsac
from kit.chromium import chromium
from kit.trained import as_if_trained, with_usual_scores

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# Drops files of the server as a user drops those of a disk.
DROP = """async files => {
    const data = new DataTransfer();
    for (const [name, type] of files) {
        const blob = await (await fetch(`/files/${name}`)).blob();
        data.items.add(new File([blob], name, { type }));
    }
    const message = document.getElementById("message");
    message.dataset.state = "dropped";
    const target = document.getElementById("drop");
    target.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    return new Promise(done => {
        const look = () => /ready|done|error/.test(message.dataset.state) && done([message.dataset.state, message.textContent]);
        new MutationObserver(look).observe(message, { attributes: true, childList: true });
    });
}"""
# The number and the probability of each class shown.
SHOWN = "[...document.querySelectorAll('#classes tbody tr')].map(row => [...row.cells].map(c => Number(c.textContent)))"


class Handler(SimpleHTTPRequestHandler):
    """Serves the repository, and the files of the tests at ``/files/``."""

    def __init__(self, *args, files, **kwargs):
        self.files = files
        super().__init__(*args, **kwargs)

    def translate_path(self, path):
        if path.startswith("/files/"):
            return str(self.files / path.removeprefix("/files/"))
        return super().translate_path(path)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The folder of the files that are dropped."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def page(package, files):
    """The page, open in a browser; the test fails if it reports an error."""
    handler = partial(Handler, directory=str(package.parent), files=files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    faults = []
    with chromium() as browser:
        opened = browser.new_page()
        opened.on("pageerror", lambda error: faults.append(str(error)))
        opened.on("console", lambda message: faults.append(message.text))
        opened.goto(f"http://127.0.0.1:{server.server_port}/examples/web/")
        yield opened
    server.shutdown()
    server.server_close()
    assert not faults


@pytest.fixture(scope="module")
def resnet(files):
    """The file of ResNet-18."""
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    model = with_usual_scores(as_if_trained(torchvision.models.resnet18()))
    path = files / "resnet18.safetensors"
    corsac.save(model, path, torch.zeros(1, 3, 224, 224))
    return path


def test_a_dropped_image_has_the_classes_of_the_native_program(page, resnet, files):
    # As large as images are scaled to: browsers scale otherwise than Pillow.
    rows, columns = numpy.mgrid[0:256, 0:256]
    waves = [128 + 90 * numpy.sin(columns / 9 + k) * numpy.cos(rows / (7 + k)) for k in range(3)]
    pixels = numpy.stack(waves, -1).clip(0, 255).astype(numpy.uint8)
    Image.fromarray(pixels).save(files / "waves.png")
    middle = torch.from_numpy(pixels[16:240, 16:240]).permute(2, 0, 1)[None] / 255
    x = (middle - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(DEVIATION).view(3, 1, 1)
    probabilities, classes = corsac.load(resnet)(x).softmax(-1)[0].topk(5)

    assert page.evaluate(DROP, [[resnet.name, ""]]) == ["ready", "Now an image."]
    state, text = page.evaluate(DROP, [["waves.png", "image/png"]])
    assert state == "done", text
    shown = page.evaluate(SHOWN)
    assert [number for number, _ in shown] == classes.tolist()
    numpy.testing.assert_allclose([p for _, p in shown], probabilities.tolist(), rtol=0, atol=1e-4)


def test_scores_in_the_browser_are_the_native_ones(page, resnet, files):
    torch.manual_seed(1)
    x = torch.randn(1, 3, 224, 224)
    (files / "x.bin").write_bytes(x.numpy().tobytes())
    scores = page.evaluate(
        """async name => {
            const { Model } = await import("/npm/index.js");
            const model = await Model.load(fetch(`/files/${name}`));
            const input = await (await fetch("/files/x.bin")).arrayBuffer();
            const [{ data }] = model.run([new Float32Array(input)]);
            model.free();
            return Array.from(data);
        }""",
        resnet.name,
    )
    torch.testing.assert_close(
        torch.tensor(scores), corsac.load(resnet)(x)[0], rtol=1e-4, atol=1e-4
    )


def test_a_file_that_is_no_model_is_an_error_on_the_page(page, files):
    (files / "notes.safetensors").write_text("not a model")
    state, text = page.evaluate(DROP, [["notes.safetensors", ""]])
    assert state == "error" and "no safetensors file" in text
