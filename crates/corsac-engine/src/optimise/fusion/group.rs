//! Choice of the steps that are fused.

use std::collections::{BTreeMap, BinaryHeap};

use super::{Kind, float_of, rows_fit, rows_of};
use crate::optimise::flow::Flow;
use crate::program::fused::{LINES, SHORTEST_RUN, Width};
use crate::program::{Element, Program, ValueId};

/// Largest number of steps that are fused with a reduction whose result they compute with.
const MOST_AFTER_ROWS: usize = 1;

/// Least number of elements of a row whose number is not repeated for them.
const SHORTEST_ROW: usize = 16;

/// Steps that are fused into one.
#[derive(Clone)]
pub(super) struct Group {
    /// By step, its kind, and whether it computes a number for each element or for each row.
    members: BTreeMap<usize, (Kind, Width)>,
    /// The last step.
    pub(super) root: usize,
    /// Another last step, which computes a number for each row.
    pub(super) row_root: Option<usize>,
    /// Number of elements of tensors.
    pub(super) len: usize,
    /// Number of elements of a row, if there are numbers for rows.
    pub(super) row: Option<usize>,
    /// Type of the floating-point numbers, if there are some.
    float: Option<Element>,
}

impl Group {
    /// The group of the steps that can be fused with step `root`, which comes last.
    pub(super) fn grow(program: &Program, flow: &Flow, root: usize) -> Option<Self> {
        let step = &program.steps[root];
        let kind = Kind::of(program, step)?;
        let mut group = Self {
            members: BTreeMap::new(),
            root,
            row_root: None,
            len: program.value(step.output).len(),
            row: None,
            float: float_of(program, step).ok()?,
        };
        let width = match kind {
            Kind::Rows(_, row) => {
                let len = program.value(step.inputs[0]).len();
                if !rows_fit(len, row) {
                    return None;
                }
                (group.len, group.row) = (len, Some(row));
                Width::Row
            }
            Kind::Each(_) | Kind::WithNumber(..) => Width::Tile,
        };
        group.members.insert(root, (kind, width));
        Some(group.grown(program, flow))
    }

    /// The group with all steps that can be fused with those that it has.
    pub(super) fn grown(mut self, program: &Program, flow: &Flow) -> Self {
        let makers = |at: usize| {
            let inputs = program.steps[at].inputs.iter();
            inputs.filter_map(|&value| flow.maker(program, value))
        };
        // Latest step first, so that all readers of a step are considered before it is.
        let mut candidates: BinaryHeap<usize> = self.members().flat_map(makers).collect();
        while let Some(at) = candidates.pop() {
            if self.members.contains_key(&at) {
                continue;
            }
            if let Some(admitted) = self.admit(program, flow, at) {
                self.members.insert(at, admitted);
                candidates.extend(makers(at));
            }
        }
        if self.row.is_none() {
            self.row = self.short_rows(program);
        }
        self
    }

    /// The group of the last steps of this group and of `rows`, which computes a number for each row.
    /// `None` if it would not have all members of both, or if members read one of the results in another way than it is
    /// computed.
    pub(super) fn with_rows(&self, rows: &Self, program: &Program, flow: &Flow) -> Option<Self> {
        let own = [
            (self.root, self.member(self.root)?),
            (rows.root, rows.member(rows.root)?),
        ];
        let group = Self {
            members: own.into_iter().collect(),
            row_root: Some(rows.root),
            row: rows.row,
            ..*self
        };
        let group = group.grown(program, flow);
        let fits = |&(at, (_, width)): &(usize, (Kind, Width))| {
            let readers = flow.readers(program.root(program.steps[at].output)).iter();
            let mut readers = readers.filter(|(reader, _)| group.members.contains_key(reader));
            readers.all(
                |&(reader, value)| match group.used(program, reader, value) {
                    Some((used, row)) => {
                        used == width && (width == Width::Tile || row == group.row)
                    }
                    None => false,
                },
            )
        };
        let mut members = self.members().chain(rows.members());
        let all = members.all(|at| group.members.contains_key(&at));
        (all && own.iter().all(fits)).then_some(group)
    }

    /// Position at which the group is computed: that of the later one of its last steps.
    pub(super) fn at(&self) -> usize {
        self.root.max(self.row_root.unwrap_or(0))
    }

    /// The width of the result.
    pub(super) fn width(&self) -> Option<Width> {
        self.member(self.root).map(|(_, width)| width)
    }

    /// The length of the rows for which operands have one number each, if it is one. Tiles that are parts of longer rows
    /// read a number each anyway.
    fn short_rows(&self, program: &Program) -> Option<usize> {
        let mut operands = self.members().flat_map(|at| {
            let step = &program.steps[at];
            let result = program.shape(step.output);
            step.inputs.iter().map(move |&own| (own, result))
        });
        let row = operands.find_map(|(own, result)| rows_of(program.shape(own), result))?;
        let in_parts = row >= SHORTEST_RUN && row.is_multiple_of(LINES);
        (row >= SHORTEST_ROW && !in_parts && rows_fit(self.len, row)).then_some(row)
    }

    /// The positions of the steps, in order.
    pub(super) fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.members.keys().copied()
    }

    /// Type of the numbers that are computed.
    pub(super) fn element(&self) -> Element {
        self.float.unwrap_or(Element::F32)
    }

    /// Kind and width of step `at`, if it is a member.
    pub(super) fn member(&self, at: usize) -> Option<(Kind, Width)> {
        self.members.get(&at).copied()
    }

    /// Kind and width of step `at`, if it can be a member.
    fn admit(&mut self, program: &Program, flow: &Flow, at: usize) -> Option<(Kind, Width)> {
        let step = &program.steps[at];
        let kind = Kind::of(program, step)?;
        let output = program.root(step.output);
        let float = float_of(program, step).ok()?;
        let differs = float.is_some() && self.float.is_some() && float != self.float;
        if flow.is_returned(output) || differs {
            return None;
        }
        let mut common: Option<(Width, Option<usize>)> = None;
        for &(reader, value) in flow.readers(output) {
            let used = self.used(program, reader, value)?;
            if *common.get_or_insert(used) != used {
                return None;
            }
        }
        let admitted = self.as_width(kind, common?)?;
        self.float = self.float.or(float);
        Some(admitted)
    }

    /// Kind and width of a member that is read with this width, and the length of a row.
    fn as_width(&mut self, kind: Kind, read: (Width, Option<usize>)) -> Option<(Kind, Width)> {
        match (read, kind) {
            ((Width::Tile, _), Kind::Each(_) | Kind::WithNumber(..)) => Some((kind, Width::Tile)),
            ((Width::Tile, _), Kind::Rows(_, row)) => {
                // The members so far then compute one number for each row of the reduced value. Many instructions for
                // the few rows of a tile take longer than a step of their own.
                let len = self.len * row;
                let few = self.members.len() <= MOST_AFTER_ROWS;
                if self.row.is_some() || !few || !rows_fit(len, row) {
                    return None;
                }
                (self.len, self.row) = (len, Some(row));
                let members = self.members.values_mut();
                members.for_each(|(_, width)| *width = Width::Row);
                Some((kind, Width::Row))
            }
            ((Width::Row, used), kind) => {
                let row = used.or(self.row)?;
                let fits = match kind {
                    Kind::Rows(_, own) => own == row,
                    Kind::Each(_) | Kind::WithNumber(..) => true,
                };
                if !fits || self.row.is_some_and(|own| own != row) || !rows_fit(self.len, row) {
                    return None;
                }
                self.row = Some(row);
                Some((kind, Width::Row))
            }
        }
    }

    /// The width at which step `reader` reads `value`, and the length of a row if that is one
    /// number for each row; `None` if the reader is no member, or reads it in another way.
    fn used(
        &self,
        program: &Program,
        reader: usize,
        value: ValueId,
    ) -> Option<(Width, Option<usize>)> {
        let &(kind, width) = self.members.get(&reader)?;
        let shape = program.shape(value);
        let len = program.value(value).len();
        let result = program.steps[reader].output;
        match (kind, width) {
            (Kind::Rows(..), _) => Some((Width::Tile, None)),
            (_, width) if len == program.value(result).len() => {
                let row = self.row.filter(|_| width == Width::Row);
                Some((width, row))
            }
            (_, Width::Tile) => {
                let row = rows_of(shape, program.shape(result))?;
                Some((Width::Row, Some(row)))
            }
            (_, Width::Row) => None,
        }
    }
}
