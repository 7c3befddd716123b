//! The filetests of the passes: a graph in; the report, as comments, and the graph out.
//!
//! The facts that a host has about a module are in a comment of the input:
//!
//! ```text
//! # module drop = dropout.Dropout training inplace
//! ```
//!
//! that is: its path, its class under `torch.nn.modules`, and the flags of [`ModuleInfo`] that
//! hold. `same=PATH` means that it is the object at that other path. Attributes that passes write
//! into the program are in another comment; a tensor is a name alone:
//!
//! ```text
//! # attributes drop p=0.5 inplace=False
//! ```

mod conversion;
mod layers;
mod quantise;
mod rewriting;

use std::fmt::Write;

use corsac_ir::{DType, ExternalId, FunctionId, Graph, NodeId};
use corsac_ops::shape::{Dim, ModuleFacts, TensorType, TypeHost, Value};
use corsac_ops::{FunctionInfo, Host, ModuleInfo};
use corsac_passes::common_subexpressions::CommonSubexpressions;
use corsac_passes::conv_bn::FoldBatchNorms;
use corsac_passes::dead_code::DeadCode;
use corsac_passes::dropout::RemoveDropout;
use corsac_passes::{
    Budget, Context, Pass, PassError, Refusal, TensorFacts, run as run_in_context,
};
use corsac_testkit::filetest::{on_graph, run};
use rustc_hash::FxHashMap;

/// The modules that an input declares.
#[derive(Default)]
struct Declared(
    FxHashMap<String, ModuleInfo>,
    FxHashMap<String, ModuleFacts>,
);

impl Declared {
    fn context<'a>(&'a self, budget: &'a mut Budget) -> Context<'a> {
        Context {
            host: self,
            types: self,
            ..Context::within(budget)
        }
    }

    fn in_comments_of(input: &str) -> Self {
        let mut declared = Self::default();
        for line in input.lines() {
            if let Some(declaration) = line.strip_prefix("# module ") {
                declared.declare(declaration);
            } else if let Some(attributes) = line.strip_prefix("# attributes ") {
                declared.add_attributes(attributes);
            }
        }
        declared
    }

    fn declare(&mut self, declaration: &str) {
        let (path, rest) = declaration
            .split_once(" = ")
            .unwrap_or_else(|| panic!("`PATH = CLASS FLAG...`, not {declaration}"));
        let mut words = rest.split_whitespace();
        let mut info = ModuleInfo {
            class: format!("torch.nn.modules.{}", words.next().unwrap_or_default()),
            identity: self.0.len() as u64,
            ..ModuleInfo::default()
        };
        for word in words {
            match word {
                "training" => info.training = true,
                "inplace" => info.inplace = true,
                "hooks" => info.hooks = true,
                "impure" => info.impure = Some(true),
                "pure" => info.impure = Some(false),
                "statistics" => info.tracks_statistics = true,
                word => match word.strip_prefix("same=").and_then(|at| self.0.get(at)) {
                    Some(same) => info.identity = same.identity,
                    None => panic!("what is {word} in {declaration}?"),
                },
            }
        }
        let facts = ModuleFacts {
            class: info.class.clone(),
            training: info.training,
            hooked: info.hooks,
            attributes: Vec::new(),
        };
        self.0.insert(path.to_owned(), info);
        self.1.insert(path.to_owned(), facts);
    }

    fn add_attributes(&mut self, attributes: &str) {
        let mut words = attributes.split_whitespace();
        let path = words.next().unwrap_or_default();
        let facts = self.1.get_mut(path);
        let facts = facts.unwrap_or_else(|| panic!("declare the module {path} first"));
        for word in words {
            let (name, value) = match word.split_once('=') {
                None => {
                    let sizes = [Dim::Known(2), Dim::Known(2)];
                    (word, Value::tensor(TensorType::new(DType::Float32, sizes)))
                }
                Some((name, value)) => (name, literal(value)),
            };
            facts.attributes.push((name.into(), value));
        }
    }
}

/// `None`, `True`, `3`, `0.5`, `(1,2)`, or a string.
fn literal(text: &str) -> Value {
    let items = text.strip_prefix('(').and_then(|t| t.strip_suffix(')'));
    match (text, items) {
        (_, Some(items)) => Value::Tuple(items.split(',').map(literal).collect()),
        ("None", _) => Value::None,
        ("True" | "False", _) => Value::Bool(text == "True"),
        _ => match (text.parse(), text.parse()) {
            (Ok(int), _) => Value::int(int),
            (_, Ok(float)) => Value::Float(float),
            _ => Value::Str(text.into()),
        },
    }
}

impl TypeHost for Declared {
    fn module(&self, path: &str) -> Option<&ModuleFacts> {
        self.1.get(path)
    }

    fn attribute(&self, _path: &str) -> Option<Value> {
        None
    }

    fn constant(&self, _id: ExternalId) -> Option<Value> {
        None
    }

    fn weight_count(&self) -> usize {
        0
    }
}

impl Host for Declared {
    fn module(&self, path: &str) -> Option<ModuleInfo> {
        self.0.get(path).cloned()
    }

    fn module_settings(&self, path: &str) -> Vec<(String, Value)> {
        let facts = self.1.get(path);
        let attributes = facts.into_iter().flat_map(|facts| &facts.attributes);
        attributes
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect()
    }

    fn function(&self, graph: &Graph, function: FunctionId) -> FunctionInfo {
        match graph.function_name(function) {
            "to_channels_last" | "to_contiguous" => FunctionInfo::Pure,
            _ => FunctionInfo::ByName,
        }
    }
}

/// Runs `filetests/FOLDER` through a pass, which returns its report as text.
fn run_pass(folder: &str, pass: impl Fn(&mut Graph, &dyn Host) -> String) {
    run(folder, |input| {
        let host = Declared::in_comments_of(input);
        on_graph(|graph| pass(graph, &host))(input)
    });
}

fn name(graph: &Graph, node: NodeId) -> &str {
    graph.node(node).name()
}

/// `done NAME`, or `kept NAME: why`.
fn outcome(text: &mut String, name: &str, done: &str, refusal: Option<&Refusal>) {
    // Writing to a `String` cannot fail.
    let _ = match refusal {
        None => writeln!(text, "{done} {name}"),
        Some(why) => writeln!(text, "kept {name}: {why}"),
    };
}

/// Runs a pass and lists its sites: `done NAME`, or `kept NAME: why`.
fn listed(
    pass: &dyn Pass,
    graph: &mut Graph,
    mut context: Context<'_>,
    done: &str,
) -> Result<String, PassError> {
    let report = run_in_context(pass, graph, &mut context)?;
    let mut text = String::new();
    for site in &report.sites {
        outcome(&mut text, &site.name, done, site.refusal.as_ref());
    }
    Ok(text)
}

/// Runs `filetests/FOLDER` through a pass that reads no types.
fn run_sites(folder: &str, pass: &dyn Pass, done: &str, limit: Option<u64>) {
    run_pass(folder, |graph, host| {
        let mut budget = limit.map_or_else(Budget::unlimited, Budget::of);
        let context = Context {
            host,
            ..Context::within(&mut budget)
        };
        let text = listed(pass, graph, context, done);
        text.unwrap_or_else(|error| error.to_string())
    });
}

#[test]
fn dce() {
    run_sites("dce", &DeadCode::default(), "removed", None);
}

#[test]
fn dce_without_random() {
    let pass = DeadCode {
        impure_random: false,
    };
    run_sites("dce-without-random", &pass, "removed", None);
}

#[test]
fn cse() {
    run_pass("cse", |graph, host| {
        let mut budget = Budget::unlimited();
        let mut context = Context {
            host,
            ..Context::within(&mut budget)
        };
        let pass = CommonSubexpressions::default();
        let report = match run_in_context(&pass, graph, &mut context) {
            Ok(report) => report,
            Err(error) => return error.to_string(),
        };
        let mut text = String::new();
        for site in &report.sites {
            let like = site.other.as_deref().unwrap_or_default();
            let between = if site.is_applied() { " into" } else { ", like" };
            let pair = format!("{}{between} {like}", site.name);
            outcome(&mut text, &pair, "merged", site.refusal.as_ref());
        }
        text
    });
}

#[test]
fn dropouts() {
    run_sites("dropout", &RemoveDropout::default(), "removed", None);
}

#[test]
fn dropouts_in_training() {
    let pass = RemoveDropout { in_training: true };
    run_sites("dropout-in-training", &pass, "removed", None);
}

/// Batch norms are folded into the right layers; Python makes the weights.
#[test]
fn conv_and_batch_norm() {
    run_pass("conv-bn", |graph, host| {
        let pass = FoldBatchNorms { linear: true };
        let (tensors, mut budget) = (TensorFacts::default(), Budget::unlimited());
        let found = match pass.find(graph, host, &tensors, &mut budget) {
            Ok(found) => found,
            Err(error) => return error.to_string(),
        };
        if let Err(error) = found.apply(graph) {
            return error.to_string();
        }
        let mut text = String::new();
        for at in &found.0 {
            let into = at.site.other.as_deref().unwrap_or_default();
            let line = match at.site.refusal {
                None => format!("{} into {into}", at.norm),
                Some(_) => at.norm.clone(),
            };
            outcome(&mut text, &line, "folded", at.site.refusal.as_ref());
        }
        text
    });
}
