//! The program's output, errors and exit codes.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use corsac_engine::{
    DType, InputSpec, Precision, ProgramSource, Signature, Size, SizeSymbol, TensorSpec,
    write_dynamic_model, write_model, write_programs,
};
use corsac_ir::Graph;
use tempfile::TempDir;

/// A folder with the model `net.safetensors`, `relu(x @ w.T + b)` and its largest elements, and
/// with the array `x.npy`.
struct Folder(TempDir);

fn spec(name: &str, shape: &[usize]) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        dtype: DType::Float32,
        shape: shape.to_vec(),
    }
}

fn bytes_of(elements: &[f32]) -> Vec<u8> {
    elements.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// A `.npy` file as numpy writes it.
fn npy(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend_from_slice(&(header.len() as u16).to_le_bytes());
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(data);
    file
}

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let graph = Graph::parse(
            "graph v1:
            %x = placeholder[target=x]
            %w = get_attr[target=fc.weight]
            %b = get_attr[target=fc.bias]
            %y = call_function[target=torch.nn.functional.linear](args = (%x, %w, %b), kwargs = {})
            %r = call_method[target=relu](args = (%y,), kwargs = {})
            %m = call_method[target=amax](args = (%r, 1), kwargs = {keepdim: False})
            %output = output[target=output](args = ({'scores': %r, 'best': %m},), kwargs = {})",
        );
        let weights = [
            (
                spec("fc.weight", &[2, 3]),
                bytes_of(&[1.0, 0.0, 2.0, -1.0, 1.0, 0.5]),
            ),
            (spec("fc.bias", &[2]), bytes_of(&[0.5, -0.5])),
        ];
        let weights: Vec<_> = weights.iter().map(|(s, b)| (s.clone(), &b[..])).collect();
        let path = folder.path("net.safetensors");
        write_model(path, &graph.unwrap(), &[spec("x", &[2, 3])], &weights).unwrap();
        let x = bytes_of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        std::fs::write(folder.path("x.npy"), npy("<f4", "False", "(2, 3)", &x)).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs the program with the words of `line`, where `@` stands before names of files in the
    /// folder. Returns exit code, standard output and standard error, with `[folder]` for the
    /// folder.
    fn corsac(&self, line: &str) -> (u8, String, String) {
        let words = line.split_whitespace().map(|word| {
            let at = self.0.path().display();
            word.replace('@', &format!("{at}/")).into()
        });
        let arguments = std::iter::once("corsac".into()).chain(words);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = corsac_cli::run(arguments, &mut out, &mut err);
        let text = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            text.replace(&self.0.path().display().to_string(), "[folder]")
        };
        (code, text(out), text(err))
    }

    fn out(&self, line: &str) -> String {
        let (code, out, err) = self.corsac(line);
        assert_eq!((code, err.as_str()), (0, ""), "{line}");
        out
    }

    /// The error, in one line.
    fn refusal(&self, line: &str) -> String {
        let (code, out, err) = self.corsac(line);
        assert_eq!((code, out.as_str()), (2, ""), "{line}: {err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        err.strip_prefix("corsac: error: ")
            .unwrap()
            .trim_end()
            .to_owned()
    }
}

#[test]
fn shells_complete_commands_and_options() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = folder.out(&format!("completions {shell}"));
        for word in [
            "run",
            "bench",
            "show",
            "ops",
            "completions",
            "threads",
            "precision",
            "bf16",
        ] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let (code, _, error) = folder.corsac("completions csh");
    assert_eq!(code, 2);
    assert!(
        error.contains("[possible values: bash, zsh, fish]"),
        "{error}"
    );
}

#[test]
fn help() {
    let folder = Folder::new();
    let mut text = folder.out("--help");
    for command in ["run", "bench", "show", "ops", "completions"] {
        text += &format!("\n\n-- corsac {command} --help\n");
        text += &folder.out(&format!("{command} --help"));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn graphs_are_shown_in_every_form() {
    let folder = Folder::new();
    let mut text = String::new();
    for format in ["graph", "table", "code", "program", "lossless"] {
        text += &format!("-- {format}\n");
        text += &folder.out(&format!("show @net.safetensors --format {format}"));
    }
    assert!(text.ends_with(&folder.out("show @net.safetensors --lossless")));
    text += "-- json\n";
    text += &folder.out("show @net.safetensors --json");
    insta::assert_snapshot!(text);
}

#[test]
fn costs_are_counted() {
    let folder = Folder::new();
    let text = folder.out("ops @net.safetensors") + &folder.out("ops @net.safetensors --json");
    insta::assert_snapshot!(text);
}

#[test]
fn a_model_runs_on_arrays() {
    let folder = Folder::new();
    let text = folder.out("run @net.safetensors --input @x.npy");
    assert_eq!(
        text,
        "scores: float32[2, 2] = [7.5, 2, 16.5, 3.5]\nbest: float32[2] = [7.5, 16.5]\n"
    );
    let text = folder.out("run @net.safetensors --input x=@x.npy --output best=@b.npy --threads 1");
    assert_eq!(
        text,
        "scores: float32[2, 2] = [7.5, 2, 16.5, 3.5]\nbest: float32[2] -> [folder]/b.npy\n"
    );
    let written = std::fs::read(folder.path("b.npy")).unwrap();
    assert!(written.starts_with(b"\x93NUMPY\x01\x00"));
    assert!(written.ends_with(&bytes_of(&[7.5, 16.5])));
    let header = String::from_utf8_lossy(&written[10..written.len() - 8]).into_owned();
    assert!(
        header.contains("'<f4'") && header.contains("'shape': (2,"),
        "{header}"
    );
    let text = folder.out("run @net.safetensors --input @x.npy --json");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        json["outputs"][0]["elements"],
        serde_json::json!([7.5, 2.0, 16.5, 3.5])
    );
    assert_eq!(json["outputs"][1]["shape"], serde_json::json!([2]));
}

#[test]
fn arrays_may_lie_in_any_order() {
    let folder = Folder::new();
    let columns = bytes_of(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    std::fs::write(folder.path("f.npy"), npy("<f4", "True", "(2, 3)", &columns)).unwrap();
    let big: Vec<u8> = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]
        .iter()
        .flat_map(|x| x.to_be_bytes())
        .collect();
    std::fs::write(folder.path("b.npy"), npy(">f4", "False", "(2, 3)", &big)).unwrap();
    let expected = folder.out("run @net.safetensors --input @x.npy");
    assert_eq!(folder.out("run @net.safetensors --input @f.npy"), expected);
    assert_eq!(folder.out("run @net.safetensors --input @b.npy"), expected);
}

#[test]
fn times_are_measured() {
    let folder = Folder::new();
    let text = folder.out("bench @net.safetensors --repeat 5 --threads 1 --json");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let seconds = |key: &str| json[key].as_f64().unwrap();
    assert!(0.0 < seconds("min_seconds") && seconds("min_seconds") <= seconds("median_seconds"));
    assert!(seconds("median_seconds") <= seconds("max_seconds"));
    assert_eq!((&json["threads"], &json["repeat"]), (&1.into(), &5.into()));
    let text = folder.out("bench @net.safetensors --repeat 4 --input @x.npy");
    let words: Vec<&str> = text
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(words, ["load", "first", "min", "median", "max", "4"]);
}

#[test]
fn what_changes_nothing_is_said() {
    let folder = Folder::new();
    let (code, _, err) = folder.corsac("bench @net.safetensors --repeat 1 --precision bf16 --json");
    let has_tiles = Precision::Bf16.effective() == Precision::Bf16;
    assert_eq!((code, err.is_empty()), (0, has_tiles), "{err}");
    assert!(has_tiles || err.starts_with("corsac: note: --precision bf16 changes nothing: "));
}

#[test]
fn numbers_of_threads_that_are_none_are_refused() {
    let folder = Folder::new();
    let bench = |threads: &str, more: &[&str]| {
        let mut program = program();
        program.env("CORSAC_NUM_THREADS", threads);
        program.args(["bench", "--repeat", "1"]).args(more);
        let done = program.arg(folder.path("net.safetensors")).output();
        let done = done.unwrap();
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code(), text)
    };
    let said =
        "corsac: error: CORSAC_NUM_THREADS is \"abc\", and a number from 1 to 65536 is needed\n";
    assert_eq!(bench("abc", &[]), (Some(2), said.to_owned()));
    assert_eq!(bench("abc", &["--threads", "1"]), (Some(0), String::new()));
    assert_eq!(bench("", &[]), (Some(0), String::new()));
}

#[test]
fn errors_are_one_line() {
    let folder = Folder::new();
    let x = bytes_of(&[1.0; 6]);
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path(name), bytes).unwrap();
    write("short.npy", &npy("<f4", "False", "(2, 3)", &x[..20]));
    write("wide.npy", &npy("<f4", "False", "(3, 2)", &x));
    write(
        "double.npy",
        &npy("<f8", "False", "(2, 3)", &[x.clone(), x.clone()].concat()),
    );
    write(
        "huge.npy",
        &npy(
            "<f4",
            "False",
            "(18446744073709551615, 18446744073709551615)",
            &x,
        ),
    );
    write("deep.npy", &npy("<f4", "False", &"(".repeat(4000), &x));
    write("header.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff");
    write("text.npy", b"import torch\n\n\nclass Net(torch.nn.Module):");
    write("empty.npy", b"");
    let model = std::fs::read(folder.path("net.safetensors")).unwrap();
    write("cut.safetensors", &model[..model.len() - 1]);
    let lines = [
        "",
        "walk",
        "run",
        "run @net.safetensors",
        "run @net.safetensors --threads 0 --input @x.npy",
        "run @nothing.safetensors --input @x.npy",
        "run @cut.safetensors --input @x.npy",
        "run @x.npy --input @x.npy",
        "run @net.safetensors --input @x.npy --input @x.npy",
        "run @net.safetensors --input x=@x.npy --input x=@x.npy",
        "run @net.safetensors --input @nothing.npy",
        "run @net.safetensors --input @short.npy",
        "run @net.safetensors --input @wide.npy",
        "run @net.safetensors --input @double.npy",
        "run @net.safetensors --input @huge.npy",
        "run @net.safetensors --input @deep.npy",
        "run @net.safetensors --input @header.npy",
        "run @net.safetensors --input @text.npy",
        "run @net.safetensors --input @empty.npy",
        "run @net.safetensors --input @x.npy --output @no/such.npy",
        "run @net.safetensors --input @x.npy --output @a.npy --output @b.npy --output @c.npy",
        "run @net.safetensors --input @x.npy --output @a.txt",
        "run @net.safetensors --input @x.npy --output worst=@a.npy",
        "run @net.safetensors --input y=@x.npy",
        "run --input @net.py",
        "run @net.py --input @x.npy",
        "bench torchvision.models:resnet18",
        "bench @",
        "shwo @net.safetensors",
        "show @net.safetensors --losless",
        "bench @net.safetensors --repeat many",
        "show @net.safetensors --format poem",
        "show @net.safetensors --json --format code",
        "ops",
    ];
    let mut text = String::new();
    for line in lines {
        text += &format!("$ corsac {line}\n  {}\n", folder.refusal(line));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn files_may_have_programs_and_state() {
    let folder = Folder::new();
    let add = Graph::parse(
        "graph v1:
        %x = placeholder[target=x]
        %sum = placeholder[target=sum]
        %s = call_method[target=add_](args = (%sum, %x), kwargs = {})
        %output = output[target=output](args = (%s,), kwargs = {})",
    );
    let peek = Graph::parse(
        "graph v1:
        %sum = placeholder[target=sum]
        %output = output[target=output](args = (%sum,), kwargs = {})",
    );
    let sum = InputSpec {
        name: "stats.sum".to_owned(),
        dtype: DType::Float32,
        shape: vec!["rows".parse().unwrap(), Size::Fixed(3)],
    };
    let rows = SizeSymbol {
        name: "rows".to_owned(),
        least: 2,
        most: Some(8),
    };
    let signature = |inputs: &[TensorSpec]| {
        let inputs = inputs.iter().map(InputSpec::from).collect();
        Signature::with_state(inputs, vec![sum.clone()], vec![rows.clone()], vec![]).unwrap()
    };
    let programs = [
        ProgramSource {
            name: "add",
            graph: &add.unwrap(),
            signature: &signature(&[spec("x", &[2, 3])]),
        },
        ProgramSource {
            name: "peek",
            graph: &peek.unwrap(),
            signature: &signature(&[]),
        },
    ];
    write_programs(
        folder.path("state.safetensors"),
        &programs,
        &[],
        &[],
        &BTreeMap::new(),
    )
    .unwrap();
    let out = folder.out("run @state.safetensors --input @x.npy --size rows=2");
    assert!(out.starts_with("output: float32[2, 3] = [1, 2,"), "{out}");
    let out = folder.out("run @state.safetensors --program peek --size rows=3");
    assert!(out.starts_with("output: float32[3, 3] = [0, 0,"), "{out}");
    let out = folder.out("bench @state.safetensors --size rows=2 --repeat 1");
    assert!(out.contains("1 calls on"), "{out}");
    let out = folder.out("show @state.safetensors --program peek");
    for line in [
        "# program add(x: float32[2, 3]) -> output: float32[",
        "# program peek() -> output: float32[rows, 3], shown here",
        "# state stats.sum: float32[rows, 3]",
    ] {
        assert!(out.contains(line), "{out}");
    }
    assert!(
        folder
            .out("ops @state.safetensors --size rows=2")
            .contains("add_")
    );
    for (line, error) in [
        (
            "run @state.safetensors --program token",
            "the model has no program \"token\", but add, peek",
        ),
        (
            "run @state.safetensors --program peek",
            "size rows: a value is missing",
        ),
    ] {
        let text = folder.refusal(line);
        assert!(text.contains(error), "{line}: {text}");
    }
}

#[test]
fn sizes_may_be_names() {
    let folder = Folder::new();
    let graph = Graph::parse(
        "graph v1:
        %x = placeholder[target=x]
        %y = call_method[target=relu](args = (%x,), kwargs = {})
        %output = output[target=output](args = (%y,), kwargs = {})",
    );
    let input = InputSpec {
        name: "x".to_owned(),
        dtype: DType::Float32,
        shape: vec!["batch".parse().unwrap(), Size::Fixed(3)],
    };
    let symbol = SizeSymbol {
        name: "batch".to_owned(),
        least: 1,
        most: Some(8),
    };
    let signature = Signature::new(vec![input], vec![symbol], Vec::new()).unwrap();
    let path = folder.path("sized.safetensors");
    write_dynamic_model(path, &graph.unwrap(), &signature, &[]).unwrap();
    let out = folder.out("run @sized.safetensors --input @x.npy");
    assert!(out.starts_with("output: float32[2, 3] = [1, 2,"), "{out}");
    let out = folder.out("show @sized.safetensors --size batch=4");
    assert_eq!(
        out.lines().next(),
        Some("# x: float32[batch, 3]; batch=1..8, here 4")
    );
    assert!(out.contains("float32[4, 3]"), "{out}");
    let out = folder.out("bench @sized.safetensors --size batch=4 --repeat 1");
    assert!(out.contains("1 calls on"), "{out}");
    for (line, error) in [
        (
            "bench @sized.safetensors",
            "size batch: a value is missing (batch=1..8)",
        ),
        (
            "ops @sized.safetensors --size batch=9",
            "size batch: 9 is more than 8",
        ),
        (
            "ops @sized.safetensors --size batch=7 --size batch=8",
            "size batch: it has two values, 7 and 8",
        ),
        (
            "show @sized.safetensors --size n=1",
            "it is no size of the model",
        ),
        (
            "ops @net.safetensors --size n=1",
            "all sizes of the model are numbers",
        ),
        (
            "run @net.safetensors",
            "the input x: float32[2, 3] is missing",
        ),
        (
            "run @sized.safetensors",
            "the input x: float32[batch, 3] is missing",
        ),
    ] {
        let text = folder.refusal(line);
        assert!(text.contains(error), "{line}: {text}");
    }
    let nine = vec![0; 9 * 3 * 4];
    std::fs::write(folder.path("9.npy"), npy("<f4", "False", "(9, 3)", &nine)).unwrap();
    std::fs::write(
        folder.path("2.npy"),
        npy("<f4", "False", "(2, 2)", &nine[..16]),
    )
    .unwrap();
    std::fs::write(
        folder.path("large.npy"),
        npy("<f4", "False", "(4000000000000, 3)", &nine),
    )
    .unwrap();
    for (file, error) in [
        ("9", "input x, dimension 0: batch: 9 is more than 8"),
        (
            "2",
            "the shape is [2, 2], and x: float32[batch, 3] is needed",
        ),
        ("large", "it is not whole"),
    ] {
        let text = folder.refusal(&format!("run @sized.safetensors --input @{file}.npy"));
        assert!(text.contains(error), "{file}: {text}");
    }
    let (code, _, text) = folder.corsac("bench @sized.safetensors --size batch");
    assert_eq!(code, 2);
    assert!(text.contains("a name and a number are needed"), "{text}");
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_corsac"))
}

#[test]
fn the_program_answers_with_its_exit_code() {
    let folder = Folder::new();
    let done = program().arg("--version").output().unwrap();
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&done.stdout), "corsac 0.1.0\n");
    let failed = program().args(["show", "/no/such"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(2));
    let text = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(
        text.starts_with("corsac: error: /no/such: No such file"),
        "{text}"
    );
    let path = folder.path("net.safetensors");
    let shown = program().arg("show").arg(path).output().unwrap();
    assert_eq!(shown.status.code(), Some(0));
    assert!(shown.stdout.starts_with(b"graph():\n"));
}

#[test]
fn the_program_links_neither_python_nor_pytorch() {
    if !Path::new("/usr/bin/ldd").exists() {
        return;
    }
    let linked = Command::new("ldd")
        .arg(env!("CARGO_BIN_EXE_corsac"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&linked.stdout).to_lowercase();
    for name in ["python", "torch", "mkl", "dnnl", "stdc++"] {
        assert!(!text.contains(name), "{text}");
    }
}
