//! The filetests of passes that write calls in another form: modules as functions and back, casts,
//! products.

use std::fmt::Display;

use corsac_ir::{DType, Graph};
use corsac_passes::autocast::{self, Casts};
use corsac_passes::functional::{self, call_layers, find_layers};
use corsac_passes::products::{self, Functions};
use corsac_passes::{PassError, TensorFacts, inversion, normal_form};
use corsac_testkit::filetest::{on_graph, run};

use crate::rewriting::Setting;
use crate::{Declared, name, outcome};

/// Runs `filetests/FOLDER` through a pass, which returns its report as text.
fn run_conversion(
    folder: &str,
    pass: impl Fn(&mut Graph, &Declared, &mut Setting) -> Result<String, PassError>,
) {
    run(folder, |input| {
        let host = Declared::in_comments_of(input);
        let pass = |graph: &mut Graph| {
            let mut setting = Setting::in_comments_of(input);
            pass(graph, &host, &mut setting).unwrap_or_else(|error| error.to_string())
        };
        on_graph(pass)(input)
    });
}

fn line<T, E: Display>(text: &mut String, name: &str, done: &str, outcome_of: &Result<T, E>) {
    let refusal = outcome_of.as_ref().err().map(|why| why as &dyn Display);
    outcome(text, name, done, refusal);
}

#[test]
fn modules_to_functions() {
    run_conversion("functional", |graph, host, setting| {
        let found = functional::find(graph, host, &|_| true, &mut setting.budget);
        found.apply(graph, Graph::function)?;
        let mut text = String::new();
        for site in &found.sites {
            line(&mut text, name(graph, site.node), "changed", &site.outcome);
        }
        Ok(text)
    });
}

/// Modules get the names of their nodes with the suffix `_module`; an attribute that ends in
/// `buffer` is no parameter.
#[test]
fn functions_to_modules() {
    run_conversion("layers", |graph, _, setting| {
        let is_parameter = |path: &str| !path.ends_with("buffer");
        let sites = find_layers(graph, &is_parameter, &mut setting.budget);
        let (mut text, mut modules) = (String::new(), Vec::new());
        for site in &sites {
            let own = name(graph, site.node).to_owned();
            let done = site.outcome.as_ref().map_or("", |layer| layer.class);
            line(&mut text, &own, done, &site.outcome);
            if site.outcome.is_ok() {
                modules.push((site.node, format!("{own}_module")));
            }
        }
        let modules = modules.iter().map(|(node, path)| (*node, path.as_str()));
        call_layers(graph, &modules.collect::<Vec<_>>())?;
        Ok(text)
    });
}

/// Casts are made by type where types are given, and by the host otherwise.
#[test]
fn casts() {
    run_conversion("autocast", |graph, host, setting| {
        let layers = autocast::find_layers(graph, host, &mut setting.budget);
        layers.apply(graph, Graph::function)?;
        let facts = setting.facts(graph);
        let casts = match setting.types.is_empty() {
            true => Casts::ByHost {
                cast: graph.function("cast"),
                widest: graph.function("widest"),
            },
            false => Casts::ByType(&facts),
        };
        let (dtype, budget) = (DType::BFloat16, &mut setting.budget);
        let done = autocast::insert(graph, host, host, dtype, &casts, budget)?;
        let mut text = String::new();
        for site in layers.sites.iter().filter(|site| site.outcome.is_err()) {
            line(&mut text, name(graph, site.node), "", &site.outcome);
        }
        for site in &done.sites {
            let how = site.outcome.as_ref().map(|how| format!("{how:?}"));
            let how = how.unwrap_or_default();
            line(&mut text, name(graph, site.node), &how, &site.outcome);
        }
        Ok(text)
    });
}

#[test]
fn normal_forms() {
    run_conversion("normal-form", |graph, _, setting| {
        let mut text = String::new();
        let named = normal_form::operators(graph, Graph::function, &mut setting.budget)?;
        let keyed = normal_form::keywords(graph, &mut setting.budget)?;
        for (sites, done) in [(named, "operator"), (keyed, "keywords")] {
            for site in sites {
                let refusal = site.refusal.as_ref().map(|why| why as &dyn Display);
                outcome(&mut text, name(graph, site.node), done, refusal);
            }
        }
        Ok(text)
    });
}

#[test]
fn inverses() {
    run_conversion("inversion", |graph, host, _| {
        Ok(match inversion::invert(graph, host) {
            Ok(inverse) => {
                *graph = inverse.graph;
                String::new()
            }
            Err(error) => error.to_string(),
        })
    });
}

#[test]
fn merged_products() {
    run_conversion("products", |graph, host, setting| {
        let facts: TensorFacts = setting.facts(graph);
        let mut found = products::find(graph, host, &facts)?;
        found.limit(&mut setting.budget);
        let functions = Functions::of_torch(graph);
        found.merge(graph, &functions)?;
        let mut text = String::new();
        for site in &found.sites {
            let refusal = site.refusal.as_ref().map(|why| why as &dyn Display);
            outcome(&mut text, name(graph, site.node), "merged", refusal);
        }
        Ok(text)
    });
}
