//! The filetests of the passes whose layers the host makes: sites, and changed calls.

use corsac_ir::Graph;
use corsac_ops::Host;
use corsac_passes::division::MultiplyByInverses;
use corsac_passes::mkldnn::{self, Supported};
use corsac_passes::{Budget, linears};

use crate::{name, outcome, run_pass, run_sites};

#[test]
fn divisions() {
    run_sites("division", &MultiplyByInverses, "changed", Some(3));
}

/// Merges each group in the order of its layers, of which number n has n output features.
fn merge(graph: &mut Graph, host: &dyn Host) -> Result<String, corsac_passes::PassError> {
    let mut calls = linears::find(graph, host, &rustc_hash::FxHashMap::default());
    let mut groups = linears::group(graph, host, &mut calls, &|_| 0)?;
    linears::limit_groups(&mut groups, &mut calls, &mut Budget::of(1));
    let getitem = graph.function("operator.getitem");
    for group in &groups {
        let member = |(&at, width): (&usize, i64)| linears::Member {
            call: calls[at].site.node,
            width,
            copied: false,
        };
        let members: Vec<_> = group.members.iter().zip(1..).map(member).collect();
        linears::merge(graph, group.input, &members, "merged", getitem)?;
    }
    let mut text = String::new();
    for call in &calls {
        outcome(&mut text, &call.layer, "merged", call.site.refusal.as_ref());
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
    for site in &plan.refused {
        outcome(&mut text, &site.name, "", site.refusal.as_ref());
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
