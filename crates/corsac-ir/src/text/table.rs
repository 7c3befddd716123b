//! The tabular form: the text of torch.fx's `print_tabular` with the `tabulate` package.
//!
//! Columns are as wide as their widest cell, and two characters wider than their heading at
//! least; a column of whole numbers (targets of a graph that only calls `0`, `1`, ...) stands on
//! the right. Cells of several lines, such as tensors, make rows of several lines. One difference:
//! `tabulate` takes a column in which all targets look like `0.10` for decimal fractions and
//! prints 0.1; they are paths, and stay what they are.

use super::host::HostText;
use super::print::Printer;
use crate::graph::Graph;
use crate::op::{Op, Target};

const HEADINGS: [&str; 5] = ["opcode", "name", "target", "args", "kwargs"];

/// Characters by which a column is wider than its heading, if no cell is wider
/// (`tabulate.MIN_PADDING`).
const HEADING_PADDING: usize = 2;

type Row = [String; HEADINGS.len()];

pub(super) fn table(graph: &Graph, host: &dyn HostText) -> String {
    let rows: Vec<Row> = rows(graph, host);
    let several_lines = rows
        .iter()
        .flatten()
        .any(|cell| cell.contains(['\n', '\r']));
    let columns: [Column; HEADINGS.len()] =
        std::array::from_fn(|i| Column::of(HEADINGS[i], rows.iter().map(|row| &row[i])));

    let mut out = String::new();
    push_line(&mut out, &columns, HEADINGS);
    out.push('\n');
    let rules = columns.each_ref().map(|column| "-".repeat(column.width));
    push_line(&mut out, &columns, rules.each_ref().map(String::as_str));
    for row in &rows {
        if !several_lines {
            out.push('\n');
            push_line(&mut out, &columns, row.each_ref().map(String::as_str));
            continue;
        }
        let cells = row.each_ref().map(|cell| lines(cell));
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..height {
            out.push('\n');
            let line = cells
                .each_ref()
                .map(|cell| cell.get(line).copied().unwrap_or(""));
            push_line(&mut out, &columns, line);
        }
    }
    out
}

fn rows(graph: &Graph, host: &dyn HostText) -> Vec<Row> {
    let mut printer = Printer::new(graph, host, 0);
    graph
        .nodes()
        .map(|id| {
            let node = graph.node(id);
            printer.repr_tuple(node.args());
            let args = printer.take();
            printer.repr_kwargs(node.kwargs());
            let kwargs = printer.take();
            let function = match node.target() {
                Target::Function(function) => graph.function_info(function).external,
                Target::Name(_) => None,
            };
            let target = function.and_then(|external| host.str(external));
            let target = match &target {
                Some(text) => text,
                None => node.target_name(),
            };
            [
                Op::name(node.op()),
                node.name().trim(),
                target.trim(),
                args.trim(),
                kwargs.trim(),
            ]
            .map(str::to_owned)
        })
        .collect()
}

/// The layout of one column.
struct Column {
    width: usize,
    to_the_right: bool,
}

impl Column {
    fn of<'a>(heading: &str, cells: impl Iterator<Item = &'a String> + Clone) -> Self {
        let widest = cells.clone().flat_map(|cell| lines(cell)).map(width).max();
        let is_number = |cell: &String| cell.is_empty() || is_whole_number(cell);
        Self {
            width: widest.unwrap_or(0).max(width(heading) + HEADING_PADDING),
            to_the_right: cells.clone().any(|cell| !cell.is_empty())
                && cells.clone().all(is_number),
        }
    }
}

/// Appends the cells, two spaces between them and none at the end.
fn push_line(out: &mut String, columns: &[Column; 5], cells: [&str; 5]) {
    let start = out.len();
    for (i, (column, cell)) in columns.iter().zip(cells).enumerate() {
        if i > 0 {
            out.push_str("  ");
        }
        let padding = column.width.saturating_sub(width(cell));
        if column.to_the_right {
            out.extend(std::iter::repeat_n(' ', padding));
        }
        out.push_str(cell);
        if !column.to_the_right {
            out.extend(std::iter::repeat_n(' ', padding));
        }
    }
    out.truncate(start + out[start..].trim_end().len());
}

fn lines(cell: &str) -> Vec<&str> {
    let mut lines: Vec<_> = cell
        .split('\n')
        .flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
        .collect();
    // A line break at the end starts no line.
    if lines.len() > 1 && lines.last() == Some(&"") {
        lines.pop();
    }
    lines
}

/// Number of code points, which is the length in Python.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// Whether Python's `int` reads it.
fn is_whole_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    digits
        .split('_')
        .all(|group| !group.is_empty() && group.bytes().all(|b| b.is_ascii_digit()))
}
