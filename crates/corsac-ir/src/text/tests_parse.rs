use super::*;
use crate::arg::{Arg, MAX_DEPTH};
use crate::graph::{Origin, Scope, Source};

/// Text in the shown form that reads back as it is.
const SHOWN: &str = "graph():
    %x : torch.Tensor [num_users=4] = placeholder[target=x]
    %y : [num_users=0] = placeholder[target=y](default=None)
    %_args : [num_users=0] = placeholder[target=*args]
    %a_b : list[int] [num_users=1] = get_attr[target=a.b]
    %add : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%x, %a_b), kwargs = {alpha: 2, mode: it's})
    %m : [num_users=0] = call_module[target=layer1.0](args = (%add,), kwargs = {})
    %eq : [num_users=0] = call_function[target=operator.eq](args = (%x, Wrong (height, [width)! got f(x)), kwargs = {})
    %f : [num_users=0] = call_function[target=f](args = (1.5, 1e+16, -inf, nan, (1-2j), 2j, 007, 1.50, 99999999999999999999), kwargs = {})
    %g : [num_users=0] = call_function[target=g](args = (torch.float32, torch.strided, torch.channels_last, cuda:1, b'a\\x00', Ellipsis, True), kwargs = {})
    %h : [num_users=0] = call_function[target=h](args = ((), [], {}, (%x,), [a, (1,)], {k: %x, (1, 'q'): {2: 3}}, slice(x, None, 2), range(0, 3)), kwargs = {})
    %i : [num_users=0] = call_function[target=i](args = (<class 'int'>, {1, 2}, (a), tensor([1., 2.]), , ), kwargs = {})
    return (x, [None, 's', device(type='cpu')], {'k': (1,)}, slice(x, None, None))
";

#[test]
fn the_shown_form_reads_back_as_it_is() {
    let graph = Graph::parse(SHOWN).unwrap();
    assert_eq!(graph.to_string(), SHOWN.trim_end());
    assert_eq!(graph.verify(), Ok(()));
    let text = graph.to_lossless();
    let again = Graph::parse(&text).unwrap();
    assert!(again.same_as(&graph), "{text}");
    assert_eq!(again.to_lossless(), text);
    assert_eq!(again.to_string(), SHOWN.trim_end());
}

#[test]
fn shown_values_get_the_plainest_reading() {
    let graph = Graph::parse(SHOWN).unwrap();
    let args_of = |name: &str| {
        let id = graph.nodes().find(|&id| graph.node(id).name() == name);
        graph.node(id.unwrap()).args().to_vec()
    };
    let text = |text: &str| Arg::Str(graph.lookup(text).unwrap());
    assert_eq!(args_of("eq")[1], text("Wrong (height, [width)! got f(x)"));
    let f = args_of("f");
    assert_eq!(f[0], Arg::Float(1.5));
    assert_eq!(f[2], Arg::Float(f64::NEG_INFINITY));
    assert_eq!(f[4], Arg::Complex(Box::new((1.0, -2.0))));
    assert_eq!(f[6], text("007"));
    assert_eq!(f[7], text("1.50"));
    assert!(matches!(f[8], Arg::BigInt(_)));
    let i = args_of("i");
    assert!(matches!(
        &i[..],
        [
            Arg::Opaque(_),
            Arg::Opaque(_),
            Arg::Opaque(_),
            Arg::Opaque(_),
            Arg::Str(_),
            Arg::Str(_)
        ]
    ));
    assert_eq!(i[5], text(""));
}

fn everything() -> Graph {
    let mut graph = Graph::parse(SHOWN).unwrap();
    let ids: Vec<_> = graph.nodes().collect();
    let (x, add) = (ids[0], ids[4]);
    graph.set_name(ids[3], "a : \"b\n").unwrap();
    graph.set_name(ids[1], "lambda").unwrap();
    let class = graph.add_external(Some("my.Class"));
    let unnamed = graph.add_external(None);
    let outer = Scope {
        parent: None,
        path: graph.intern(""),
        class,
        call: 0,
    };
    let outer = graph.add_scope(outer);
    let inner = Scope {
        parent: Some(outer),
        path: graph.intern("layer1.0"),
        class: unnamed,
        call: 3,
    };
    let scope = Some(graph.add_scope(inner));
    let (file, function) = (graph.intern("a \"b\".py"), graph.intern("forward"));
    let line = Source::Line {
        file,
        line: 12,
        function,
    };
    let source = Some(graph.add_source(line));
    graph.set_origin(add, Origin { source, scope });
    let host = Source::Host {
        code: class,
        offset: -4,
    };
    let source = Some(graph.add_source(host));
    graph.set_origin(
        ids[5],
        Origin {
            source,
            scope: None,
        },
    );
    // Two functions with one name, one of them with another base name.
    let one = graph.external_function("pkg.f", "f", class);
    let two = graph.external_function("pkg.f", "<lambda>", unnamed);
    for function in [one, two, one] {
        graph.call_function(function, [x.into()]).unwrap();
    }
    // Users out of order: the first user becomes the last.
    let args = graph.node(add).args().to_vec();
    let kwargs = graph.node(add).kwargs().to_vec();
    graph
        .set_arguments(add, args.into(), kwargs.into())
        .unwrap();
    graph
}

#[test]
fn the_lossless_form_keeps_everything() {
    let graph = everything();
    let text = graph.to_lossless();
    let again = Graph::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert!(again.same_as(&graph), "{text}\n{}", again.to_lossless());
    assert_eq!(again.to_lossless(), text);
    assert_eq!(again.verify(), Ok(()));
    for part in [
        "graph v1:\n    extern @0 = \"torch.Tensor\"\n".replace('"', "'"),
        "scope $1 = 'layer1.0' class @3 call 3 in $0".to_owned(),
        "%'a : \"b\\n' : @1 [num_users=1] = get_attr[target=a.b]".to_owned(),
        "at 'a \"b\".py':12 in 'forward' scope $1".to_owned(),
        " at @2:-4\n".to_owned(),
        "%x : @0 [users=(%eq, %h, ".to_owned(),
        "call_function[target=pkg.f@3 as '<lambda>'](args = (%x,), kwargs = {})".to_owned(),
    ] {
        assert!(text.contains(&part), "{part}\n\n{text}");
    }
}

#[test]
fn every_difference_is_a_difference() {
    let graph = everything();
    let text = graph.to_lossless();
    // Numbers of users are left out, since some changes change them.
    let text: String = text
        .split("[num_users=")
        .map(|part| match part.split_once("] = ") {
            Some((number, rest)) if number.parse::<u32>().is_ok() => format!("= {rest}"),
            _ => part.to_owned(),
        })
        .collect();
    assert!(Graph::parse(&text).unwrap().same_as(&graph), "{text}");
    let changes = [
        ("call 3", "call 4"),
        ("'layer1.0' class", "'layer1' class"),
        ("class @3", "class @2"),
        (":12", ":13"),
        (":-4", ":4"),
        ("'forward'", "'f'"),
        (" scope $1\n", " scope $0\n"),
        (" scope $1\n", "\n"),
        ("1e+16", "1e+17"),
        ("-inf", "inf"),
        (", 2j", ", -2j"),
        ("torch.channels_last", "torch.preserve_format"),
        ("'my.Class'", "'your.Class'"),
        (" = 'my.Class'", ""),
        ("pkg.f@3 as '<lambda>'", "pkg.f@3"),
        ("pkg.f@3", "pkg.f@2"),
        ("alpha: 2", "beta: 2"),
        ("alpha: 2", "alpha: 2.0"),
        ("target=layer1.0", "target=layer1.1"),
        ("call_module", "call_method"),
        ("%lambda", "%lambda_"),
        ("None, 2)", "None, 3)"),
        ("slice(%x, None, 2)", "(%x, None, 2)"),
        ("range(0, 3, 1)", "range(0, 3, 2)"),
        (" in $0", ""),
        ("(%eq, %h, ", "(%h, %eq, "),
        ("%x : @0", "%x : @1"),
        ("%x : @0 ", "%x : "),
    ];
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        let other = Graph::parse(&text.replacen(old, new, 1)).unwrap();
        assert!(
            !other.same_as(&graph) && !graph.same_as(&other),
            "{old} -> {new}"
        );
    }
    assert!(graph.clone().same_as(&graph));
}

struct Case {
    text: &'static str,
    error: &'static str,
}

#[test]
fn errors_say_where_and_what() {
    let cases = [
        Case {
            text: "",
            error: "line 1, column 1: expected `graph():` or `graph v1:`, found the end of the text\n  | \n  | ^",
        },
        Case {
            text: "graph v2:\n",
            error: "line 1, column 8: expected version 1 of the text form, found `2`\n  | graph v2:\n  |        ^",
        },
        Case {
            text: "graph():\n    %x : [num_users=0] placeholder[target=x]",
            error: "line 2, column 23: expected ` = `, found ` `",
        },
        Case {
            text: "graph():\n    %x",
            error: "line 2, column 7: expected ` : ` after the name, found the end of the text\n  |     %x\n  |       ^",
        },
        Case {
            text: "graph v1:\n    %x = placeholder[target=x]\n    %y = call_methods[target=x]",
            error: "line 3, column 10: expected one of placeholder, get_attr, call_function, call_method, call_module, output, found `call_methods`\n  |     %y = call_methods[target=x]\n  |          ^",
        },
        Case {
            text: "graph v1:\n %x = call_method[target=x](args = (%y,), kwargs = {})",
            error: "line 2, column 37: expected the name of a node, found `%y`",
        },
        Case {
            text: "graph v1:\n%x = get_attr[target=x]\n%x = get_attr[target=y]",
            error: "line 3, column 1: expected a new name, found `x`, which is the name of another node",
        },
        Case {
            text: "graph():\n%x : [num_users=2] = get_attr[target=x]\nreturn x",
            error: "line 2, column 17: expected 1, the number of nodes here that use x, found 2",
        },
        Case {
            text: "graph v1:\n%x = f",
            error: "line 2, column 6: expected one of placeholder",
        },
        Case {
            text: "graph v1:\n%x = call_method[target=f](args = ('a, 1), kwargs = {})",
            error: "expected `'` at the end of a string, found the end of the",
        },
        Case {
            text: "graph v1:\n%x = call_method[target=f](args = ('\\q',), kwargs = {})",
            error: "line 2, column 37: expected an escape sequence of Python, found `\\`",
        },
        Case {
            text: "graph v1:\n%x = call_method[target=f](args = (1), kwargs = {})",
            error: "line 2, column 37: expected `,` in a tuple of one, found `)`",
        },
        Case {
            text: "graph v1:\n%x = call_method[target=f](args = ({%x: 1},), kwargs = {})",
            error: "is used in the key of a dictionary argument",
        },
        Case {
            text: "graph():\n    return (x,)",
            error: "line 2, column 13: expected a value or the name of a node, found `x`",
        },
        Case {
            text: "graph():\n    %x : [num_users=0] = call_method[target=f](args = (%y,), kwargs = {})",
            error: "line 2, column 56: expected the name of a node, found `%y`",
        },
        Case {
            text: "graph v1:\n%x = get_attr[target=f] scope $0",
            error: "line 2, column 31: expected the number of a `scope` declared before, found `$`",
        },
        Case {
            text: "graph v1:\n%x : @0 = get_attr[target=f]",
            error: "line 2, column 6: expected the number of a declared `extern`, found `@`",
        },
    ];
    for Case { text, error } in cases {
        let found = Graph::parse(text).unwrap_err().to_string();
        assert!(found.contains(error), "{text}\n  {found}\n  {error}");
    }
}

#[test]
fn long_lines_are_shown_around_the_place() {
    let text = format!(
        "graph v1:\n%x = call_method[target=f](args = ({}?, {}), kwargs = {{}})",
        "1, ".repeat(1000),
        "2, ".repeat(1000)
    );
    let error = Graph::parse(&text).unwrap_err();
    assert_eq!((error.line, error.column), (2, 3036));
    assert!(error.excerpt.chars().count() < 130, "{}", error.excerpt);
    assert_eq!(error.excerpt.chars().nth(error.caret), Some('?'));
}

#[test]
fn nesting_is_bounded_and_never_recursed_into() {
    let nested = |depth: usize, head: &str| {
        format!(
            "{head}\n    %x : [num_users=0] = call_method[target=f](args = ({}{},), kwargs = {{}})",
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    for head in ["graph v1:", "graph():"] {
        let deep = Graph::parse(&nested(usize::from(MAX_DEPTH), head)).unwrap();
        assert!(Graph::parse(&deep.to_lossless()).unwrap().same_as(&deep));
        for depth in [usize::from(MAX_DEPTH) + 1, 1_000_000] {
            let error = Graph::parse(&nested(depth, head)).unwrap_err();
            assert_eq!(error.expected, "containers at most 256 deep");
        }
        for open in ["(", "{", "slice(", "{1: ", "(1, ", "f("] {
            let text = format!(
                "{head}\n    %x = call_method[target=f](args = ({}",
                open.repeat(1_000_000)
            );
            assert!(Graph::parse(&text).is_err());
            let text = format!("{head}\n    return {}", open.repeat(1_000_000));
            // In the shown form, text that is neither closed nor quoted is a string.
            assert_eq!(
                Graph::parse(&text).is_ok(),
                head == "graph():" && open.len() > 1 && !open.starts_with(['(', '{'])
            );
        }
    }
}

#[test]
fn nodes_may_come_in_any_order() {
    let text = "graph v1:
    %b : [num_users=1] = call_method[target=neg](args = (%a,), kwargs = {})
    %c : [num_users=0] = call_method[target=add](args = (%a, %b), kwargs = {})
    %a : [num_users=2] = placeholder[target=a]
";
    let graph = Graph::parse(text).unwrap();
    assert_eq!(graph.to_lossless(), text);
    assert!(graph.lint().is_err());
}

#[test]
fn integers_of_any_size() {
    let decimal = "9".repeat(4299);
    let text = format!(
        "graph v1:\n    %x : [num_users=0] = call_method[target=f](args = ({decimal}, -{decimal}, -9223372036854775808, 0x{}), kwargs = {{}})\n",
        "f".repeat(100_000)
    );
    assert!(Graph::parse(&text).unwrap().to_lossless() == text);
    let error = Graph::parse(&text.replace(&decimal, &"9".repeat(4301))).unwrap_err();
    assert_eq!(error.found, "4301 digits");
}
