use std::borrow::Cow;

use super::*;
use crate::arg::{Arg, Dict, Seq};
use crate::dtype::{DType, Device, DeviceKind, Layout, MemoryFormat};
use crate::entity::ExternalId;

fn cuda() -> Arg {
    Arg::Device(Device {
        kind: DeviceKind::Cuda,
        index: Some(1),
    })
}

/// Each row was printed by torch.fx 2.15: among the arguments of a call, and as a default value.
#[test]
fn arguments_print_as_in_torch_fx() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let quoted = Arg::Str(graph.intern("it's"));
    let word = Arg::Str(graph.intern("s"));
    let q = Arg::Str(graph.intern("q"));
    let class = graph.add_external(Some("NT"));
    let pair = Seq::new([x.into(), word.clone()]).unwrap();
    let tuple = |items: Vec<Arg>| Arg::tuple(items).unwrap();
    let inner = Dict::new([(Arg::Int(1), x.into())]).unwrap();
    let dict = Dict::new([
        (word.clone(), Arg::Dict(inner)),
        (tuple(vec![Arg::Int(1), q]), Arg::Int(2)),
    ]);
    let device_slice = Arg::slice(
        Arg::Device(Device {
            kind: DeviceKind::Cpu,
            index: None,
        }),
        Arg::list([x.into(), word.clone()]).unwrap(),
        Arg::None,
    );
    let range = |a, b, c| Arg::Range(Seq::new([Arg::Int(a), Arg::Int(b), Arg::Int(c)]).unwrap());
    let cases: Vec<(Arg, &str, &str)> = vec![
        (Arg::Int(12), "12", "12"),
        (Arg::Int(-3), "-3", "-3"),
        (Arg::Float(1e16), "1e+16", "1e+16"),
        (Arg::Float(-0.0), "-0.0", "-0.0"),
        (Arg::Float(f64::NAN), "nan", "nan"),
        (Arg::Complex(Box::new((1.0, -2.0))), "(1-2j)", "(1-2j)"),
        (Arg::Ellipsis, "Ellipsis", "Ellipsis"),
        (Arg::Bool(true), "True", "True"),
        (quoted.clone(), "it's", "it's"),
        (
            Arg::Bytes(Box::new(b"ab'\x00".to_vec())),
            "b\"ab'\\x00\"",
            "b\"ab'\\x00\"",
        ),
        (Arg::DType(DType::Float32), "torch.float32", "torch.float32"),
        (
            Arg::Layout(Layout::Strided),
            "torch.strided",
            "torch.strided",
        ),
        (
            Arg::MemoryFormat(MemoryFormat::Contiguous),
            "torch.contiguous_format",
            "torch.contiguous_format",
        ),
        (cuda(), "cuda:1", "cuda:1"),
        (x.into(), "%x", "x"),
        (tuple(vec![]), "()", "()"),
        (tuple(vec![quoted]), "(it's,)", "(\"it's\",)"),
        (
            Arg::list([x.into(), word.clone(), tuple(vec![Arg::Int(1)])]).unwrap(),
            "[%x, s, (1,)]",
            "[x, 's', (1,)]",
        ),
        (
            Arg::Dict(dict.unwrap()),
            "{s: {1: %x}, (1, 'q'): 2}",
            "{'s': {1: x}, (1, 'q'): 2}",
        ),
        (
            device_slice.unwrap(),
            "slice(device(type='cpu'), [x, 's'], None)",
            "slice(device(type='cpu'), [x, 's'], None)",
        ),
        (range(0, 3, 1), "range(0, 3)", "range(0, 3)"),
        (range(1, 5, 2), "range(1, 5, 2)", "range(1, 5, 2)"),
        (
            Arg::NamedTuple(Box::new((class, pair))),
            "(%x, s)",
            "NT(a=x, b='s')",
        ),
        (
            tuple(vec![cuda()]),
            "(cuda:1,)",
            "(device(type='cuda', index=1),)",
        ),
    ];
    for (arg, shown, default) in cases {
        let call = graph.call_method("f", [arg.clone()]).unwrap();
        let line = graph.format_node(call, &Classes);
        let (_, args) = line.split_once("(args = (").unwrap();
        assert_eq!(args, format!("{shown},), kwargs = {{}})"));
        let parameter = graph.placeholder_with_default("p", arg).unwrap();
        let line = graph.format_node(parameter, &Classes);
        let (_, value) = line.split_once("](default=").unwrap();
        assert_eq!(value, format!("{default})"));
    }
}

/// A host with one class of named tuples, and with texts of its values.
struct Classes;

impl HostText for Classes {
    fn str(&self, value: ExternalId) -> Option<Cow<'_, str>> {
        Some(Cow::Owned(format!("str of {value}")))
    }

    fn repr(&self, value: ExternalId) -> Option<Cow<'_, str>> {
        Some(Cow::Owned(format!("<{value}\nrepr>")))
    }

    fn annotation(&self, _ty: ExternalId) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed("typing.List[int]"))
    }

    fn named_tuple(&self, _class: ExternalId) -> Option<NamedTupleClass> {
        Some(NamedTupleClass {
            name: "NT".into(),
            fields: vec!["a".into(), "b".into()],
        })
    }
}

/// The layout of this graph was printed by torch.fx 2.15.
fn example() -> Graph {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let ty = graph.add_external(Some("torch.Tensor"));
    graph.set_ty(x, Some(ty)).unwrap();
    let y = graph.placeholder_with_default("y", Arg::None).unwrap();
    graph.placeholder("*args").unwrap();
    let weight = graph.get_attr("a.b").unwrap();
    let add = graph.function("torch.ops.aten.add.Tensor");
    let sum = graph.call_function(add, [x.into(), weight.into()]).unwrap();
    let key = graph.intern("alpha");
    graph.set_kwargs(sum, [(key, y.into())]).unwrap();
    let module = graph.call_module("m", [sum.into()]).unwrap();
    let value = graph.add_external(None);
    let view = graph
        .call_method("view", [module.into(), Arg::Opaque(value)])
        .unwrap();
    let key = Arg::Str(graph.intern("k"));
    let dict = Arg::Dict(Dict::new([(key, Arg::tuple([view.into()]).unwrap())]).unwrap());
    let tuple = Arg::tuple([x.into(), Arg::list([y.into(), cuda()]).unwrap(), dict]);
    graph.output(tuple.unwrap()).unwrap();
    graph
}

#[test]
fn a_graph_prints_as_in_torch_fx() {
    assert_eq!(
        example().to_string(),
        "graph():
    %x : torch.Tensor [num_users=2] = placeholder[target=x]
    %y : [num_users=2] = placeholder[target=y](default=None)
    %_args : [num_users=0] = placeholder[target=*args]
    %a_b : [num_users=1] = get_attr[target=a.b]
    %add_tensor : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%x, %a_b), kwargs = {alpha: %y})
    %m : [num_users=1] = call_module[target=m](args = (%add_tensor,), kwargs = {})
    %view : [num_users=1] = call_method[target=view](args = (%m, <x1>), kwargs = {})
    return (x, [y, device(type='cuda', index=1)], {'k': (view,)})"
    );
    let host = example().to_text(&Classes);
    assert!(host.contains("%x : typing.List[int] [num_users=2]"));
    assert!(host.contains("(args = (%m, str of x1), kwargs = {})"));
    assert_eq!(Graph::new().to_string(), "graph():");
}

#[test]
fn the_table_is_laid_out_as_by_tabulate() {
    assert_eq!(
        example().to_table(&Classes),
        "\
opcode         name        target                     args                                                       kwargs
-------------  ----------  -------------------------  ---------------------------------------------------------  ------------
placeholder    x           x                          ()                                                         {}
placeholder    y           y                          (None,)                                                    {}
placeholder    _args       *args                      ()                                                         {}
get_attr       a_b         a.b                        ()                                                         {}
call_function  add_tensor  torch.ops.aten.add.Tensor  (x, a_b)                                                   {'alpha': y}
call_module    m           m                          (add_tensor,)                                              {}
call_method    view        view                       (m, <x1                                                    {}
                                                      repr>)
output         output      output                     ((x, [y, device(type='cuda', index=1)], {'k': (view,)}),)  {}"
    );
    assert_eq!(
        Graph::new().to_table(&NoHost),
        "opcode    name    target    args    kwargs\n--------  ------  --------  ------  --------"
    );
    let mut numbered = Graph::new();
    numbered.call_module("0", []).unwrap();
    numbered.call_module("10", []).unwrap();
    assert_eq!(
        numbered.to_table(&NoHost),
        "opcode       name      target  args    kwargs
-----------  ------  --------  ------  --------
call_module  _0             0  ()      {}
call_module  _10           10  ()      {}"
    );
}
