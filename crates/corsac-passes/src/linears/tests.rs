use super::*;
use corsac_ops::FunctionInfo;

/// Linear layers by path; those with the same number are one module.
struct Model(Vec<(&'static str, ModuleInfo)>);

impl Model {
    fn new(paths: &[(&'static str, u64)]) -> Self {
        let info = |&(path, identity): &(&'static str, u64)| {
            let info = ModuleInfo {
                class: "torch.nn.modules.linear.Linear".to_owned(),
                identity,
                ..ModuleInfo::default()
            };
            (path, info)
        };
        Self(paths.iter().map(info).collect())
    }
}

impl Host for Model {
    fn module(&self, path: &str) -> Option<ModuleInfo> {
        let found = self.0.iter().find(|(p, _)| *p == path);
        found.map(|(_, info)| info.clone())
    }

    fn function(&self, _: &Graph, _: FunctionId) -> FunctionInfo {
        FunctionInfo::ByName
    }
}

/// `q(x)`, the nodes that `between` adds, `k(x)` and `v(x)`, the sum of all.
fn attention(between: impl FnOnce(&mut Graph, NodeId)) -> (Graph, NodeId, Vec<NodeId>) {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let q = graph.call_module("a.q", [x.into()]).unwrap();
    between(&mut graph, x);
    let k = graph.call_module("a.k", [x.into()]).unwrap();
    let v = graph.call_module("a.v", [x.into()]).unwrap();
    let all = Arg::tuple([q.into(), k.into(), v.into()]).unwrap();
    graph.output(all).unwrap();
    (graph, x, vec![q, k, v])
}

fn model() -> Model {
    Model::new(&[("a.q", 1), ("a.k", 2), ("a.v", 3)])
}

fn grouped(graph: &Graph, model: &Model) -> (Vec<Vec<usize>>, Vec<Option<String>>) {
    let mut sites = find(graph, model, &FxHashMap::default());
    let groups = group(graph, model, &mut sites, &|_| 0).unwrap();
    let reasons = sites
        .iter()
        .map(|s| s.site.refusal.as_ref().map(ToString::to_string));
    (
        groups.into_iter().map(|g| g.members).collect(),
        reasons.collect(),
    )
}

#[test]
fn layers_with_one_input_become_one() {
    let (mut graph, x, calls) = attention(|_, _| ());
    let (groups, _) = grouped(&graph, &model());
    assert_eq!(groups, [vec![0, 1, 2]]);
    let getitem = graph.function("operator.getitem");
    let members = [(4, false), (2, true), (2, false)];
    let members = calls.iter().zip(members);
    let members: Vec<_> = members
        .map(|(&call, (width, copied))| Member {
            call,
            width,
            copied,
        })
        .collect();
    merge(&mut graph, x, &members, "a.merged", getitem).unwrap();
    graph.verify().unwrap();
    assert_eq!(
        graph.to_string(),
        "graph():
    %x : [num_users=1] = placeholder[target=x]
    %a_merged : [num_users=3] = call_module[target=a.merged](args = (%x,), kwargs = {})
    %a_q : [num_users=1] = call_function[target=operator.getitem](args = (%a_merged, (Ellipsis, slice(0, 4, None))), kwargs = {})
    %getitem : [num_users=1] = call_function[target=operator.getitem](args = (%a_merged, (Ellipsis, slice(4, 6, None))), kwargs = {})
    %a_k : [num_users=1] = call_method[target=contiguous](args = (%getitem,), kwargs = {})
    %a_v : [num_users=1] = call_function[target=operator.getitem](args = (%a_merged, (Ellipsis, slice(6, 8, None))), kwargs = {})
    return (a_q, a_k, a_v)"
    );
}

#[test]
fn a_write_to_the_input_parts_a_group() {
    let (graph, ..) = attention(|graph, x| {
        graph.call_method("add_", [x.into(), x.into()]).unwrap();
    });
    let (groups, reasons) = grouped(&graph, &model());
    assert_eq!(groups, [vec![1, 2]]);
    let alone = "no other linear layer that it could be merged with is called with x";
    assert_eq!(reasons[0].as_deref(), Some(alone));
}

#[test]
fn kinds_stay_apart() {
    let (graph, ..) = attention(|_, _| ());
    let model = model();
    let mut sites = find(&graph, &model, &FxHashMap::default());
    let kind = |layer: &str| usize::from(layer == "a.k");
    let groups = group(&graph, &model, &mut sites, &kind).unwrap();
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].members, [0, 2]);
}

#[test]
fn what_others_use_stays() {
    let (graph, ..) = attention(|_, _| ());
    let shared = Model::new(&[("a.q", 1), ("a.k", 1), ("a.v", 3)]);
    let (groups, reasons) = grouped(&graph, &shared);
    assert_eq!(groups, [] as [Vec<usize>; 0]);
    assert_eq!(reasons[0].as_deref(), Some("a.q is called 2 times"));

    let (graph, ..) = attention(|graph, _| {
        graph.get_attr("a.q.weight").unwrap();
    });
    let (groups, reasons) = grouped(&graph, &model());
    assert_eq!(groups, [vec![1, 2]]);
    assert_eq!(
        reasons[0].as_deref(),
        Some("the graph uses a.q.weight besides a.q")
    );

    let (graph, ..) = attention(|graph, x| {
        graph.call_module("a", [x.into()]).unwrap();
    });
    let (_, reasons) = grouped(&graph, &model());
    assert_eq!(reasons[2].as_deref(), Some("the graph uses a besides a.v"));

    let mut hooked = model();
    hooked.0[1].1.hooks = true;
    let (graph, ..) = attention(|_, _| ());
    let (groups, reasons) = grouped(&graph, &hooked);
    // The hooks may write to the input of all three.
    assert_eq!(groups, [] as [Vec<usize>; 0]);
    assert_eq!(
        reasons[1].as_deref(),
        Some("a.k has hooks or declares side effects")
    );
}

#[test]
fn a_column_of_ones_goes_behind_the_input() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let q = graph.call_module("a.q", [x.into()]).unwrap();
    graph.output(q).unwrap();
    let pad = graph.function("torch.nn.functional.pad");
    pad_input(&mut graph, q, x, pad).unwrap();
    graph.verify().unwrap();
    assert_eq!(
        graph.to_string(),
        "graph():
    %x : [num_users=1] = placeholder[target=x]
    %pad : [num_users=1] = call_function[target=torch.nn.functional.pad](args = (%x, (0, 1), constant, 1.0), kwargs = {})
    %a_q : [num_users=1] = call_module[target=a.q](args = (%pad,), kwargs = {})
    return a_q"
    );
}
