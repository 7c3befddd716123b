//! The filetests of quantisation, with a small backend: layers that are fused, observers, and their
//! conversion.

use corsac_ir::{DType, Graph};
use corsac_ops::Host;
use corsac_passes::quantise::convert::{self, Conversion, Operators, Range, Request, Steps};
use corsac_passes::quantise::fuse::{self, Fusible};
use corsac_passes::quantise::observe::{
    self, Backend, DTypeConfig, Observation, Observed, Observer, QConfig, Quantisable, Structure,
    TupleFunctions, Wholes,
};
use corsac_passes::quantise::pattern::{Call, Pattern};
use corsac_passes::{Budget, PassError};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{name, outcome, run_pass};

fn class(name: &str) -> Call {
    Call::Class(format!("torch.nn.modules.{name}"))
}

/// The pattern of these calls, given in the order in which they run.
fn chain(calls: impl IntoIterator<Item = Call>) -> Pattern {
    let chained = calls
        .into_iter()
        .fold(None, |inner: Option<Pattern>, call| {
            let args = inner.into_iter().collect();
            Some(Pattern { call, args })
        });
    chained.expect("a pattern has a call")
}

fn fuse(graph: &mut Graph, host: &dyn Host) -> Result<String, PassError> {
    let [conv, norm, relu] = ["conv.Conv2d", "batchnorm.BatchNorm2d", "activation.ReLU"].map(class);
    let functional = Call::Function(graph.function("torch.nn.functional.relu"));
    let chains = [
        vec![conv.clone(), norm.clone()],
        vec![conv.clone(), norm.clone(), relu.clone()],
        vec![conv.clone(), norm, functional.clone()],
        vec![conv.clone(), relu],
        vec![conv, functional],
    ];
    let fusible = chains.map(|calls| Fusible {
        root: calls.len() - 1,
        pattern: chain(calls),
        extra: Vec::new(),
    });
    let found = fuse::find(graph, host, &fusible, &mut Budget::of(2));
    let mut text = String::new();
    for fusion in &found {
        let root = fusion.site.other.as_deref().unwrap_or_default();
        let line = format!("{} into {root}", fusion.site.name);
        outcome(&mut text, &line, "fused", fusion.site.refusal.as_ref());
    }
    fuse::apply(graph, &found)?;
    Ok(text)
}

#[test]
fn fused_layers() {
    run_pass("quantise-fuse", |graph, host| {
        fuse(graph, host).unwrap_or_else(|error| error.to_string())
    });
}

fn backend(graph: &mut Graph) -> Backend {
    let quantised = |dtype: &str| Some(dtype.to_owned());
    let dtypes = vec![DTypeConfig {
        input: quantised("quint8"),
        output: quantised("quint8"),
        weight: quantised("qint8"),
        bias: quantised("float32"),
        dynamic: false,
    }];
    let mut function = |name: &str| Call::Function(graph.function(name));
    let linear = function("torch.nn.functional.linear");
    let relu = function("torch.nn.functional.relu");
    let own = [class("conv.Conv2d"), function("torch.sigmoid")].map(Pattern::from);
    let shared = [
        class("pooling.MaxPool2d"),
        function("torch.cat"),
        Call::Method("reshape".to_owned()),
    ];
    let entry = |pattern: Pattern, observation| Quantisable {
        root: pattern.len() - 1,
        pattern,
        observation,
        by_tensors: FxHashMap::default(),
        dtypes: vec![0],
        weight: None,
        bias: None,
    };
    let by_tensors = [(1, Observation::Shared), (2, Observation::Own)];
    let mut patterns = vec![
        Quantisable {
            weight: Some(1),
            bias: Some(2),
            ..entry(linear.clone().into(), Observation::Own)
        },
        entry(chain([linear, relu]), Observation::Own),
        Quantisable {
            by_tensors: by_tensors.into_iter().collect(),
            ..entry(function("torch.add").into(), Observation::Own)
        },
    ];
    patterns.extend(own.map(|pattern| entry(pattern, Observation::Own)));
    patterns.extend(shared.map(|call| entry(call.into(), Observation::Shared)));
    Backend {
        patterns,
        dtypes,
        broken: FxHashSet::default(),
    }
}

/// Observers for all nodes but those called `float`.
fn observed(graph: &mut Graph, host: &dyn Host) -> Result<Observed, PassError> {
    let backend = backend(graph);
    let observer = |dtype: &str| Observer {
        dtype: dtype.to_owned(),
        ..Observer::default()
    };
    let request = observe::Request {
        qconfigs: vec![QConfig {
            activation: Some(observer("quint8")),
            weight: Some(observer("qint8")),
            reuses_input: false,
        }],
        choices: graph
            .nodes()
            .map(|node| (node, (name(graph, node) != "float").then_some(0)))
            .collect(),
        wholes: Wholes {
            custom: ["lstm".to_owned()].into_iter().collect(),
            tuples: [("lstm".to_owned(), Structure::RECURRENT)]
                .into_iter()
                .collect(),
            ..Wholes::default()
        },
        tuple_functions: Some(TupleFunctions {
            getitem: graph.function("operator.getitem"),
            tuple: graph.function("tuple"),
        }),
        ..observe::Request::default()
    };
    observe::observe(graph, host, &backend, &request)
}

fn observe(graph: &mut Graph, host: &dyn Host) -> Result<String, PassError> {
    let observed = observed(graph, host)?;
    let mut text = String::new();
    for placed in &observed.placed {
        let shared = &observed.placed[placed.module].name;
        let line = match (placed.node, *shared == placed.name) {
            (None, _) => format!("{}: removed\n", placed.name),
            (Some(_), true) => format!("{}: {:?}\n", placed.name, placed.part),
            (Some(_), false) => format!("{}: that of {shared}\n", placed.name),
        };
        text.push_str(&line);
    }
    for site in observed.sites.iter().filter(|site| !site.is_applied()) {
        outcome(&mut text, &site.name, "", site.refusal.as_ref());
    }
    Ok(text)
}

#[test]
fn observers() {
    run_pass("quantise-observe", |graph, host| {
        observe(graph, host).unwrap_or_else(|error| error.to_string())
    });
}

/// Converts observers: those of weights to attributes, those of values to steps of 0.5.
fn convert(graph: &mut Graph, host: &dyn Host) -> Result<String, PassError> {
    let observed = observed(graph, host)?;
    let steps = Steps::Tensor {
        scale: 0.5,
        zero_point: 3,
    };
    let range = |dtype, min, max| Range { min, max, dtype };
    let paths = observed.placed.iter().map(|placed| placed.name.as_str());
    let paths: FxHashSet<&str> = paths.collect();
    let constants = convert::constant_inputs(graph, &paths);
    let constants: FxHashMap<&str, Vec<&str>> = constants
        .iter()
        .map(|(observer, nodes)| {
            let nodes = nodes.iter().map(|&node| name(graph, node)).collect();
            (graph.node(*observer).target_name(), nodes)
        })
        .collect();
    let mut text = String::new();
    let mut conversions = FxHashMap::default();
    for placed in &observed.placed {
        let conversion = match constants.get(placed.name.as_str()) {
            Some(nodes) => {
                text.push_str(&format!("{}: constant {}\n", placed.name, nodes.join(", ")));
                let range = range(DType::Int8, -128, 127);
                Conversion::Constant("w_quantized".to_owned(), steps.clone(), range)
            }
            None => Conversion::Static(steps.clone(), range(DType::UInt8, 0, 255)),
        };
        conversions.insert(placed.name.clone(), conversion);
    }
    let left_alone = graph.nodes().filter(|&node| name(graph, node) == "float");
    let request = Request {
        observers: conversions,
        left_alone: left_alone.collect(),
        quantised_inputs: Vec::new(),
        quantised_outputs: Vec::new(),
        floats: None,
    };
    let mut function = |name: &str| graph.function(&format!("torch.ops.corsac.{name}.default"));
    let operators = Operators {
        quantise: function("quantize_per_tensor"),
        dequantise: function("dequantize_per_tensor"),
        quantise_channels: function("quantize_per_channel"),
        dequantise_channels: function("dequantize_per_channel"),
        choose: function("choose_qparams_per_token"),
        quantise_rows: function("quantize_per_token"),
        dequantise_rows: function("dequantize_per_token"),
        getitem: graph.function("operator.getitem"),
    };
    convert::convert(graph, &request, &operators)?;
    Ok(text)
}

#[test]
fn conversions() {
    run_pass("quantise-convert", |graph, host| {
        convert(graph, host).unwrap_or_else(|error| error.to_string())
    });
}
