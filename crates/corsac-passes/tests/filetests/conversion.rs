//! The filetests of passes that write calls in another form: modules as functions and back, casts,
//! products.

use corsac_ir::Graph;
use corsac_passes::autocast::Autocast;
use corsac_passes::functional::{Classes, ModulesToFunctions, call_layers, find_layers};
use corsac_passes::normal_form::{Keywords, Operators};
use corsac_passes::products::MergeProducts;
use corsac_passes::{Context, PassError, inversion, run};
use corsac_testkit::filetest::{self, on_graph};

use crate::rewriting::Setting;
use crate::{Declared, listed, name, outcome};

/// Runs `filetests/FOLDER` through a pass, which returns its report as text.
fn run_conversion(
    folder: &str,
    pass: impl Fn(&mut Graph, &Declared, &mut Setting) -> Result<String, PassError>,
) {
    filetest::run(folder, |input| {
        let host = Declared::in_comments_of(input);
        let pass = |graph: &mut Graph| {
            let mut setting = Setting::in_comments_of(input);
            pass(graph, &host, &mut setting).unwrap_or_else(|error| error.to_string())
        };
        on_graph(pass)(input)
    });
}

#[test]
fn modules_to_functions() {
    run_conversion("functional", |graph, host, setting| {
        let pass = ModulesToFunctions::default();
        listed(&pass, graph, host.context(&mut setting.budget), "changed")
    });
}

/// Modules get the names of their nodes with the suffix `_module`; an attribute that ends in
/// `buffer` is no parameter.
#[test]
fn functions_to_modules() {
    run_conversion("layers", |graph, _, setting| {
        let is_parameter = |path: &str| !path.ends_with("buffer");
        let (sites, layers) = find_layers(graph, &is_parameter, &mut setting.budget);
        let mut text = String::new();
        let mut classes = layers.iter().map(|layer| layer.class);
        for site in &sites {
            let applied = site.is_applied().then(|| classes.next());
            let class = applied.flatten().unwrap_or_default();
            outcome(&mut text, &site.name, class, site.refusal.as_ref());
        }
        let modules = layers.iter().map(|layer| {
            let path = format!("{}_module", name(graph, layer.node));
            (layer.node, path)
        });
        let modules: Vec<_> = modules.collect();
        let modules = modules.iter().map(|(node, path)| (*node, path.as_str()));
        call_layers(graph, &modules.collect::<Vec<_>>())?;
        Ok(text)
    });
}

#[test]
fn casts() {
    run_conversion("autocast", |graph, host, setting| {
        let layers = ModulesToFunctions {
            classes: Classes::Autocast,
        };
        let mut context = host.context(&mut setting.budget);
        let layers = run(&layers, graph, &mut context)?;
        let done = run(&Autocast::default(), graph, &mut context)?;
        let mut text = String::new();
        let kept = layers.sites.iter().filter(|site| !site.is_applied());
        for site in kept.chain(&done.sites) {
            let how = site.other.as_deref().unwrap_or_default();
            outcome(&mut text, &site.name, how, site.refusal.as_ref());
        }
        Ok(text)
    });
}

#[test]
fn normal_forms() {
    run_conversion("normal-form", |graph, host, setting| {
        let budget = &mut setting.budget;
        let operators = listed(&Operators, graph, host.context(budget), "operator")?;
        let keywords = listed(&Keywords, graph, host.context(budget), "keywords")?;
        Ok(operators + &keywords)
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
        let tensors = setting.facts(graph);
        let pass = MergeProducts::default();
        let context = Context {
            tensors: &tensors,
            ..host.context(&mut setting.budget)
        };
        listed(&pass, graph, context, "merged")
    });
}
