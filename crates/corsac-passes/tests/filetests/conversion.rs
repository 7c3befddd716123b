//! The filetests of passes that write calls in another form: modules as functions and back, casts,
//! products.

use corsac_ir::{Graph, Op};
use corsac_ops::shape::Value;
use corsac_passes::autocast::Autocast;
use corsac_passes::functional::{Classes, FunctionsToModules, ModulesToFunctions};
use corsac_passes::normal_form::{Keywords, Operators};
use corsac_passes::products::MergeProducts;
use corsac_passes::{Context, Pass as _, PassError, inversion, run};
use corsac_testkit::filetest::{self, on_graph};

use crate::rewriting::Setting;
use crate::{Declared, listed, outcome};

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
        let attributes = graph.find_nodes(Op::GetAttr, None).into_iter();
        let paths = attributes.map(|node| graph.node(node).target_name().to_owned());
        let pass = FunctionsToModules {
            parameters: paths.filter(|path| !path.ends_with("buffer")).collect(),
        };
        let mut plan = pass.plan(graph, &mut Context::within(&mut setting.budget))?;
        let mut text = String::new();
        for request in &mut plan.requests {
            let site = &plan.sites[request.site];
            request.names.push(format!("{}_module", site.name));
        }
        let classes: Vec<_> = plan
            .requests
            .iter()
            .map(|own| own.facts[0].1.clone())
            .collect();
        let mut classes = classes.iter().map(|class| match class {
            Value::Str(class) => &**class,
            _ => "",
        });
        let report = plan.apply(graph, &|graph, name| graph.function(name))?;
        for site in &report.sites {
            let applied = site.is_applied().then(|| classes.next());
            let class = applied.flatten().unwrap_or_default();
            outcome(&mut text, &site.name, class, site.refusal.as_ref());
        }
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
