//! The fuzz targets of model files and of their C interface.

use std::collections::BTreeMap;

use std::sync::Arc;

use corsac_engine::{
    DType, InputSpec, Limits, Model, ModelError, ModelErrorKind, ModelFile, ModelProgram,
    ProgramSource, Signature, Size, SizeSymbol, Tensor, TensorSpec, dynamic_model_bytes,
    model_bytes, programs_bytes,
};
use corsac_ir::Graph;

use crate::fuzz_text::small_text_model;

/// Loads `bytes` as a model file, within small limits, and runs the model, with symbols for the least sizes
/// and for larger ones: results have the shapes that the file declares, or an error is returned.
///
/// # Panics
/// If the engine fails internally, or an error has more than one line.
pub fn model_file(bytes: &[u8]) {
    let limits = Limits {
        value_bytes: 1 << 22,
        iterations: 1000,
        ..Limits::default()
    };
    let loaded = ModelFile::from_bytes(bytes.to_vec(), &limits).and_then(Model::from_file);
    let model = match loaded {
        Ok(model) => Arc::new(model.with_threads(1)),
        Err(error) => {
            assert_ne!(error.kind(), ModelErrorKind::Internal, "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
            return;
        }
    };
    for program in model.programs() {
        let _ = program.dynamic_outputs();
        let least = program.signature().least();
        let larger: Vec<usize> = least.iter().map(|&size| size.saturating_add(3)).collect();
        for values in [&least[..], &larger] {
            if let Some(inputs) = zeros(program, values, &limits) {
                run(&model, program, values, &inputs);
            }
        }
    }
}

/// Inputs of zeros where symbols have these values, unless they are too large.
fn zeros(program: &ModelProgram, values: &[usize], limits: &Limits) -> Option<Vec<Tensor>> {
    let specs = program.signature().specs_at(values).ok()?;
    let bytes = |spec: &TensorSpec| {
        let sizes = spec.shape.iter();
        sizes.fold(8_u64, |bytes, &size| bytes.saturating_mul(size as u64))
    };
    if specs
        .iter()
        .any(|spec| bytes(spec) > limits.value_bytes * 8)
    {
        return None;
    }
    let zeros = |spec: &TensorSpec| spec.zeros().expect("the engine knows the type");
    Some(specs.iter().map(zeros).collect())
}

/// Runs a program twice in a session.
fn run(model: &Arc<Model>, program: &ModelProgram, values: &[usize], inputs: &[Tensor]) {
    let is_dynamic = program.signature().is_dynamic() || model.state().is_dynamic();
    // An index out of range, or a division by zero; with symbols, sizes that it does not take.
    let check = |error: ModelError| {
        let kind = error.kind();
        let is_known = kind == ModelErrorKind::Call || kind == ModelErrorKind::TooLarge;
        assert!(
            is_known || is_dynamic && kind != ModelErrorKind::Internal,
            "{error}"
        );
    };
    let own = program.signature().symbols().iter().zip(values);
    let own: Vec<(&str, usize)> = own.map(|(symbol, &value)| (&*symbol.name, value)).collect();
    let state = model.state().symbols().iter().map(|symbol| {
        let known = own.iter().find(|(name, _)| *name == symbol.name);
        (
            &*symbol.name,
            known.map_or(symbol.least, |(_, value)| *value),
        )
    });
    let mut session = match model.session(&state.collect::<Vec<_>>()) {
        Ok(session) => session,
        Err(error) => return check(error),
    };
    for _ in 0..2 {
        let outputs = match session.run(program.name(), inputs) {
            Ok(outputs) => outputs,
            Err(error) => return check(error),
        };
        let sized = session.specialise_for(program.name(), inputs);
        let sized = sized.expect("sizes of a call");
        for (spec, tensor) in sized.outputs().iter().zip(&outputs) {
            assert_eq!(spec.shape, tensor.shape());
        }
        for spec in session.specs() {
            let state = session.state(&spec.name).expect("the state");
            assert_eq!((spec.dtype, &*spec.shape), (state.dtype(), state.shape()));
        }
    }
}

/// Makes calls of the C interface that `bytes` choose: of a model with several types, of sessions, and of a language
/// model.
///
/// # Panics
/// If a call breaks its promises.
pub fn c_interface(bytes: &[u8]) {
    use corsac::fuzz::{Target, TextTarget};
    thread_local! {
        static TYPED: Option<Target> = Target::load(&typed_model());
        static STATEFUL: Option<Target> = Target::load(&stateful_model());
        static TEXT: Option<TextTarget> = TextTarget::load(&small_text_model());
    }
    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let names = [c"batch", c"capacity"];
    match first % 3 {
        0 => TYPED.with(|own| own.as_ref().expect("a model").calls(rest)),
        1 => STATEFUL.with(|own| own.as_ref().expect("a model").session_calls(&names, rest)),
        _ => TEXT.with(|own| own.as_ref().expect("a model").calls(rest)),
    };
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

/// A small model file with weights of 8 and 4 bits, for fuzzers to change.
///
/// # Panics
/// Never: the model is valid.
#[must_use]
pub fn quantised_model() -> Vec<u8> {
    let graph = Graph::parse(
        "graph v1:
        %x = placeholder[target=x]
        %q = call_function[target=torch.ops.corsac.quantize_per_tensor.default](args = (%x, 0.5, 3, 0, 255, torch.uint8), kwargs = {})
        %d = call_function[target=torch.ops.corsac.dequantize_per_tensor.default](args = (%q, 0.5, 3, 0, 255, torch.uint8), kwargs = {})
        %w = get_attr[target=conv.weight]
        %s = get_attr[target=conv.weight_scale]
        %z = get_attr[target=conv.weight_zero_point]
        %f = call_function[target=torch.ops.corsac.dequantize_per_channel.default](args = (%w, %s, %z, 0, -128, 127, torch.int8), kwargs = {})
        %y = call_function[target=torch.conv2d](args = (%d, %f, None), kwargs = {padding: (1, 1)})
        %r = call_function[target=torch.nn.functional.relu](args = (%y,), kwargs = {})
        %m = call_method[target=mean](args = (%r, [3]), kwargs = {})
        %c = call_function[target=torch.ops.corsac.choose_qparams_per_token.default](args = (%m, -128, 127), kwargs = {})
        %c0 = call_function[target=operator.getitem](args = (%c, 0), kwargs = {})
        %c1 = call_function[target=operator.getitem](args = (%c, 1), kwargs = {})
        %e = call_function[target=torch.ops.corsac.quantize_per_token.default](args = (%m, %c0, %c1, -128, 127, torch.int8), kwargs = {})
        %h = call_function[target=torch.ops.corsac.dequantize_per_token.default](args = (%e, %c0, %c1, -128, 127, torch.int8, torch.float32), kwargs = {})
        %p = get_attr[target=fc.weight]
        %t = get_attr[target=fc.scale]
        %u = call_function[target=torch.ops.corsac.unpack_int4.default](args = (%p,), kwargs = {})
        %g = call_function[target=torch.ops.corsac.dequantize_per_channel_group.default](args = (%u, %t, None, -8, 7, torch.int8, 2), kwargs = {})
        %l = call_function[target=torch.nn.functional.linear](args = (%h, %g), kwargs = {})
        %output = output[target=output](args = (%l,), kwargs = {})",
    );
    let graph = graph.expect("a graph");
    let spec = |name: &str, dtype, shape: &[usize]| TensorSpec {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
    };
    let float = DType::Float32;
    let weights = [
        (
            spec("conv.weight", DType::Int8, &[2, 2, 3, 3]),
            [5_u8; 36].as_slice(),
        ),
        (spec("conv.weight_scale", float, &[2]), &[60; 8]),
        (spec("conv.weight_zero_point", DType::Int32, &[2]), &[0; 8]),
        (spec("fc.weight", DType::UInt8, &[3, 2]), &[0x7f; 6]),
        (spec("fc.scale", float, &[3, 2]), &[60; 24]),
    ];
    let inputs = [spec("x", float, &[1, 2, 4, 4])];
    model_bytes(&graph, &inputs, &weights).expect("weights of these sizes")
}

/// A small model file with inputs, weights and results of other types, for fuzzers to change.
///
/// # Panics
/// Never: the model is valid.
#[must_use]
pub fn typed_model() -> Vec<u8> {
    let graph = Graph::parse(
        "graph v1:
        %x = placeholder[target=x]
        %n = placeholder[target=n]
        %d = placeholder[target=d]
        %w = get_attr[target=fc.weight]
        %e = get_attr[target=words.weight]
        %y = call_function[target=torch.nn.functional.linear](args = (%x, %w), kwargs = {})
        %z = call_function[target=torch.nn.functional.embedding](args = (%n, %e), kwargs = {})
        %s = call_function[target=operator.add](args = (%y, %z), kwargs = {})
        %t = call_method[target=to](args = (%s, torch.int16), kwargs = {})
        %m = call_function[target=operator.mul](args = (%t, %n), kwargs = {})
        %v = call_function[target=torch.mul](args = (%d, 0.5), kwargs = {})
        %f = call_method[target=half](args = (%v,), kwargs = {})
        %output = output[target=output](args = ((%s, {'m': %m}, %v, %f),), kwargs = {})",
    );
    let graph = graph.expect("a graph");
    let spec = |name: &str, dtype, shape: &[usize]| TensorSpec {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
    };
    use DType::{BFloat16, Float16, Float64, Int32};
    let weights = [
        (spec("fc.weight", BFloat16, &[4, 2]), [60_u8; 16].as_slice()),
        (spec("words.weight", Float16, &[5, 4]), &[60; 40]),
    ];
    let inputs = [
        spec("x", BFloat16, &[4, 2]),
        spec("n", Int32, &[4]),
        spec("d", Float64, &[3]),
    ];
    model_bytes(&graph, &inputs, &weights).expect("weights of these sizes")
}

/// A small model file whose sizes are symbols, for fuzzers to change.
///
/// # Panics
/// Never: the model is valid.
#[must_use]
pub fn sized_model() -> Vec<u8> {
    let graph = Graph::parse(
        "graph v1:
        %x = placeholder[target=x]
        %y = placeholder[target=y]
        %w = get_attr[target=w]
        %n = call_method[target=size](args = (%x, 0), kwargs = {})
        %r = call_function[target=operator.mod](args = (%n, 3), kwargs = {})
        %c = call_function[target=operator.eq](args = (%r, 2), kwargs = {})
        %p = call_function[target=torch.nn.functional.linear](args = (%x, %w), kwargs = {})
        %s = call_function[target=operator.getitem](args = (%y, slice(None, %n, None)), kwargs = {})
        %z = call_function[target=operator.add](args = (%p, %s), kwargs = {})
        %v = call_method[target=view](args = (%z, -1), kwargs = {})
        %output = output[target=output](args = ((%z, %v),), kwargs = {})",
    );
    let size = |text: &str| match text.parse() {
        Ok(size) => Size::Fixed(size),
        Err(_) => text.parse().expect("a size"),
    };
    let input = |name: &str, shape: [&str; 2]| InputSpec {
        name: name.to_owned(),
        dtype: DType::Float32,
        shape: shape.map(size).to_vec(),
    };
    let symbols = vec![SizeSymbol {
        name: "n".to_owned(),
        least: 2,
        most: Some(64),
    }];
    let inputs = vec![input("x", ["n", "4"]), input("y", ["2*n + 1", "3"])];
    let signature = Signature::new(inputs, symbols, vec!["c".to_owned()]);
    let weight = TensorSpec {
        name: "w".to_owned(),
        dtype: DType::Float32,
        shape: vec![3, 4],
    };
    let weights = [(weight, [1_u8; 48].as_slice())];
    let (graph, signature) = (graph.expect("a graph"), signature.expect("a signature"));
    dynamic_model_bytes(&graph, &signature, &weights).expect("weights of these sizes")
}

/// A small model file with two programs and state whose sizes are symbols, for fuzzers to change.
///
/// # Panics
/// Never: the model is valid.
#[must_use]
pub fn stateful_model() -> Vec<u8> {
    let write = Graph::parse(
        "graph v1:
        %x = placeholder[target=x]
        %at = placeholder[target=at]
        %cache = placeholder[target=cache]
        %count = placeholder[target=count]
        %w = get_attr[target=w]
        %p = call_function[target=torch.nn.functional.linear](args = (%x, %w), kwargs = {})
        %h = call_method[target=half](args = (%p,), kwargs = {})
        %k = call_method[target=index_copy_](args = (%cache, 1, %at, %h), kwargs = {})
        %n = call_method[target=add_](args = (%count, 1), kwargs = {})
        %s = call_method[target=sum](args = (%k, 1), kwargs = {})
        %output = output[target=output](args = ((%s, %n, %count),), kwargs = {})",
    );
    let read = Graph::parse(
        "graph v1:
        %cache = placeholder[target=c]
        %part = call_function[target=operator.getitem](args = (%cache, (slice(None, None, None), slice(1, 2, None))), kwargs = {})
        %z = call_method[target=zero_](args = (%part,), kwargs = {})
        %output = output[target=output](args = (%cache,), kwargs = {})",
    );
    let input = |name: &str, dtype, shape: &[&str]| {
        let size = |text: &&str| match text.parse() {
            Ok(size) => Size::Fixed(size),
            Err(_) => text.parse().expect("a size"),
        };
        InputSpec {
            name: name.to_owned(),
            dtype,
            shape: shape.iter().map(size).collect(),
        }
    };
    let symbol = |name: &str, least, most| SizeSymbol {
        name: name.to_owned(),
        least,
        most,
    };
    let symbols = vec![symbol("batch", 1, Some(8)), symbol("capacity", 2, None)];
    let inputs = vec![
        input("x", DType::Float32, &["batch", "1", "3"]),
        input("at", DType::Int64, &["1"]),
    ];
    let cache = input("own.cache", DType::Float16, &["batch", "capacity", "2"]);
    let state = vec![cache.clone(), input("own.count", DType::Int32, &[])];
    let spec = |name: &str, dtype, shape: &[usize]| TensorSpec {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
    };
    let weights = [
        (spec("w", DType::Float32, &[2, 3]), [1_u8; 24].as_slice()),
        (spec("own.cache", DType::Float16, &[1, 1, 2]), &[60; 4]),
    ];
    let of_write = Signature::with_state(inputs, state, symbols.clone(), Vec::new());
    let of_read = Signature::with_state(Vec::new(), vec![cache], symbols, Vec::new());
    let programs = [
        ProgramSource {
            name: "write",
            graph: &write.expect("a graph"),
            signature: &of_write.expect("a signature"),
        },
        ProgramSource {
            name: "read",
            graph: &read.expect("a graph"),
            signature: &of_read.expect("a signature"),
        },
    ];
    programs_bytes(&programs, &[], &weights, &BTreeMap::new()).expect("weights of these sizes")
}

/// A small model file with a loop, and in it a scan with a condition, for fuzzers to change.
///
/// # Panics
/// Never: the model is valid.
#[must_use]
pub fn control_model() -> Vec<u8> {
    let graph = |text: &str| Graph::parse(&format!("graph v1:\n{text}")).expect("a graph");
    let main = graph(
        "%x = placeholder[target=x]
        %n = placeholder[target=n]
        %below = get_attr[target=below]
        %body = get_attr[target=body]
        %y = call_function[target=torch.ops.higher_order.while_loop](args = (%below, %body, (%n, %x), ()), kwargs = {})
        %output = output[target=output](args = (%y,), kwargs = {})",
    );
    let called = [
        (
            "below",
            "%n = placeholder[target=n]
            %x = placeholder[target=x]
            %y = call_function[target=torch.lt](args = (%n, 3), kwargs = {})
            %output = output[target=output](args = (%y,), kwargs = {})",
        ),
        (
            "body",
            "%n = placeholder[target=n]
            %x = placeholder[target=x]
            %w = get_attr[target=w]
            %row = get_attr[target=row]
            %m = call_function[target=torch.add](args = (%n, 1), kwargs = {})
            %s = call_function[target=torch.ops.higher_order.scan](args = (%row, (%n,), (%x,), (%w, 2)), kwargs = {})
            %y = call_function[target=operator.getitem](args = (%s, 1), kwargs = {})
            %output = output[target=output](args = ((%m, %y),), kwargs = {})",
        ),
        (
            "row",
            "%n = placeholder[target=n]
            %x = placeholder[target=x]
            %w = placeholder[target=w]
            %k = placeholder[target=k]
            %layer = get_attr[target=layer]
            %same = get_attr[target=same]
            %big = call_function[target=torch.gt](args = (%n, 1), kwargs = {})
            %c = call_function[target=torch.ops.higher_order.cond](args = (%big, %layer, %same, (%x, %w)), kwargs = {})
            %y = call_function[target=operator.getitem](args = (%c, 0), kwargs = {})
            %m = call_function[target=torch.mul](args = (%n, %k), kwargs = {})
            %output = output[target=output](args = ((%m, %y),), kwargs = {})",
        ),
        (
            "layer",
            "%x = placeholder[target=x]
            %w = placeholder[target=w]
            %y = call_function[target=torch.nn.functional.linear](args = (%x, %w), kwargs = {})
            %output = output[target=output](args = ((%y,),), kwargs = {})",
        ),
        (
            "same",
            "%x = placeholder[target=x]
            %w = placeholder[target=w]
            %output = output[target=output](args = ((%x,),), kwargs = {})",
        ),
    ];
    let called = called.map(|(name, text)| (name, graph(text)));
    let called: Vec<(&str, &Graph)> = called.iter().map(|(name, own)| (*name, own)).collect();
    let spec = |name: &str, dtype, shape: &[usize]| TensorSpec {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
    };
    let inputs = [
        spec("x", DType::Float32, &[2, 2]),
        spec("n", DType::Int64, &[]),
    ];
    let weights = [(spec("w", DType::Float32, &[2, 2]), [1_u8; 16].as_slice())];
    let program = ProgramSource {
        name: "",
        graph: &main,
        signature: &Signature::fixed(&inputs),
    };
    programs_bytes(&[program], &called, &weights, &BTreeMap::new()).expect("weights of these sizes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_for_fuzzers_load_and_run() {
        for bytes in [
            small_model(),
            quantised_model(),
            typed_model(),
            sized_model(),
            stateful_model(),
            control_model(),
        ] {
            let file = ModelFile::from_bytes(bytes.clone(), &Limits::default());
            let model = Arc::new(file.and_then(Model::from_file).expect("a model"));
            let least: Vec<(&str, usize)> = model
                .state()
                .symbols()
                .iter()
                .map(|symbol| (&*symbol.name, symbol.least))
                .collect();
            let mut session = model.session(&least).expect("a session");
            for program in model.programs() {
                let inputs = program.inputs().iter();
                let inputs = inputs.map(|own| own.zeros().expect("zeros"));
                let inputs: Vec<Tensor> = inputs.collect();
                assert!(session.run(program.name(), &inputs).is_ok());
            }
            model_file(&bytes);
        }
    }
}
