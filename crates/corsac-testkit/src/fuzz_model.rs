//! The fuzz target of model files.

use corsac_engine::{
    DType, Limits, Model, ModelErrorKind, ModelFile, Tensor, TensorSpec, model_bytes,
};
use corsac_ir::Graph;

/// Loads `bytes` as a model file, within small limits, and runs the model: results have the shapes
/// that the file declares, or an error is returned.
///
/// # Panics
/// If the engine fails internally, or an error has more than one line.
pub fn model_file(bytes: &[u8]) {
    let limits = Limits {
        value_bytes: 1 << 22,
        ..Limits::default()
    };
    let loaded = ModelFile::from_bytes(bytes.to_vec(), &limits).and_then(Model::from_file);
    let model = match loaded {
        Ok(model) => model.with_threads(1),
        Err(error) => {
            assert_ne!(error.kind(), ModelErrorKind::Internal, "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
            return;
        }
    };
    let inputs: Vec<Tensor> = model
        .inputs()
        .iter()
        .map(|spec| spec.zeros().expect("the engine knows the type"))
        .collect();
    match model.run(&inputs) {
        Ok(outputs) => {
            for (spec, tensor) in model.outputs().iter().zip(&outputs) {
                assert_eq!(spec.shape, tensor.shape());
            }
        }
        // An index out of range, or a division by zero.
        Err(error) => assert_eq!(error.kind(), ModelErrorKind::Call, "{error}"),
    }
}

/// A small model file, for fuzzers to change.
///
/// # Panics
/// Never: the model is valid.
#[must_use]
pub fn small_model() -> Vec<u8> {
    let graph = Graph::parse(
        "graph v1:
        %x = placeholder[target=x]
        %w = get_attr[target=conv.weight]
        %b = get_attr[target=conv.bias]
        %y = call_function[target=torch.conv2d](args = (%x, %w, %b), kwargs = {stride: 1, padding: (1, 1), dilation: 1, groups: 1})
        %r = call_function[target=torch.nn.functional.relu](args = (%y,), kwargs = {})
        %p = call_function[target=torch.nn.functional.max_pool2d](args = (%r, 2, 2, 0, 1), kwargs = {ceil_mode: False})
        %t = call_method[target=permute](args = (%p, 0, 2, 3, 1), kwargs = {})
        %f = call_method[target=flatten](args = (%t, 1), kwargs = {})
        %s = call_method[target=softmax](args = (%f, -1), kwargs = {})
        %g = call_function[target=operator.getitem](args = (%s, (slice(None, None, None), slice(1, 6, 2))), kwargs = {})
        %c = call_function[target=torch.cat](args = ([%g, %f],), kwargs = {dim: 1})
        %m = call_method[target=mean](args = (%c, [1]), kwargs = {keepdim: True})
        %z = call_function[target=operator.add](args = (%c, %m), kwargs = {})
        %output = output[target=output](args = ((%z, [%m]),), kwargs = {})",
    );
    let graph = graph.expect("a graph");
    let spec = |name: &str, shape: &[usize]| TensorSpec {
        name: name.to_owned(),
        dtype: DType::Float32,
        shape: shape.to_vec(),
    };
    let weights = [
        (spec("conv.weight", &[2, 2, 3, 3]), [1_u8; 144].as_slice()),
        (spec("conv.bias", &[2]), &[0; 8]),
    ];
    model_bytes(&graph, &[spec("x", &[1, 2, 4, 4])], &weights).expect("weights of these sizes")
}
