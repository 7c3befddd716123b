//! The filetests of the passes whose layers the host makes: sites, and changed calls.

use corsac_ir::Graph;
use corsac_ops::Host;
use corsac_passes::mkldnn::{self, Supported};
use corsac_passes::{Budget, division, linears};

use crate::{name, outcome, run_pass};

#[test]
fn divisions() {
    run_pass("division", |graph, _| {
        let multiply = graph.function("operator.mul");
        let sites = division::to_multiplication(graph, multiply, &mut Budget::of(3));
        let sites = match sites {
            Ok(sites) => sites,
            Err(error) => return error.to_string(),
        };
        let mut text = String::new();
        for site in &sites {
            let refusal = site
                .refusal
                .as_ref()
                .map(|why| why as &dyn std::fmt::Display);
            outcome(&mut text, name(graph, site.node), "changed", refusal);
        }
        text
    });
}

/// Merges each group in the order of its layers, of which number n has n output features.
fn merge(graph: &mut Graph, host: &dyn Host) -> Result<String, corsac_passes::PassError> {
    let mut sites = linears::find(graph, host, &rustc_hash::FxHashMap::default());
    let mut groups = linears::group(graph, host, &mut sites, &|_| 0)?;
    linears::limit_groups(&mut groups, &mut sites, &mut Budget::of(1));
    let getitem = graph.function("operator.getitem");
    for group in &groups {
        let member = |(&at, width): (&usize, i64)| linears::Member {
            call: sites[at].node,
            width,
            copied: false,
        };
        let members: Vec<_> = group.members.iter().zip(1..).map(member).collect();
        linears::merge(graph, group.input, &members, "merged", getitem)?;
    }
    let mut text = String::new();
    for site in &sites {
        let refusal = site
            .refusal
            .as_ref()
            .map(|why| why as &dyn std::fmt::Display);
        outcome(&mut text, &site.layer, "merged", refusal);
    }
    Ok(text)
}

#[test]
fn merged_linears() {
    run_pass("linears", |graph, host| {
        merge(graph, host).unwrap_or_else(|error| error.to_string())
    });
}

fn to_onednn(graph: &mut Graph, host: &dyn Host) -> Result<String, corsac_passes::PassError> {
    let supported = Supported::of_graph(graph);
    let mut plan = mkldnn::plan(graph, host, &supported)?;
    let enter = graph.function("to_channels_last");
    let leave = graph.function("to_contiguous");
    let mut text = String::new();
    for refused in &plan.refused {
        outcome(
            &mut text,
            name(graph, refused.node),
            "",
            Some(&refused.reason),
        );
    }
    for subgraph in &plan.subgraphs {
        mkldnn::convert(graph, subgraph, &mut plan.writes, enter, leave)?;
        let writes = mkldnn::Writes::of_graph(graph, host)?;
        for fused in mkldnn::fuse(graph, host, subgraph, &writes)? {
            let gone: Vec<&str> = fused.gone.iter().map(|&node| name(graph, node)).collect();
            let line = format!(
                "{} does what {} did",
                name(graph, fused.node),
                gone.join(", ")
            );
            if !gone.is_empty() {
                outcome(&mut text, &line, &fused.layer, None);
            }
        }
    }
    Ok(text)
}

#[test]
fn onednn() {
    run_pass("mkldnn", |graph, host| {
        to_onednn(graph, host).unwrap_or_else(|error| error.to_string())
    });
}
