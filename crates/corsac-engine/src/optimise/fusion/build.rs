//! Instructions for a group of steps.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::group::Group;
use super::{Kind, combine, dies, epilogues, number, rows_of};
use crate::optimise::flow::Flow;
use crate::program::fused::{Access, Arg, Args, Function, Fused, Instruction, Target, Width};
use crate::program::{Binary, Op, Program, Reduction, Step, Unary, ValueId};

/// The fused step of `group`; `None` if the group is too small to gain from it.
pub(super) fn step(program: &Program, flow: &Flow, group: &Group) -> Option<Step> {
    let mut builder = Builder {
        program,
        flow,
        group,
        inputs: Vec::new(),
        instructions: Vec::new(),
        values: FxHashMap::default(),
        loaded: FxHashMap::default(),
    };
    builder.find_overwritten();
    for at in group.members() {
        builder.member(at);
    }
    let last = &program.steps[group.root];
    let computed = builder.instructions.iter();
    let computed = computed.filter(|own| !matches!(own.function, Function::Load { .. }));
    if computed.count() < 2 {
        return None;
    }
    let row_result = group.row_root.map(|at| program.steps[at].output);
    if let Some(value) = row_result {
        builder.place_last(value, Width::Row)?;
    }
    builder.place_last(last.output, group.width()?)?;
    combine::all(&mut builder.instructions);
    let results = 1 + usize::from(row_result.is_some());
    remove_unread(&mut builder.instructions, results);
    let (inputs, accesses): (Vec<ValueId>, Vec<Access>) = builder.inputs.into_iter().unzip();
    let mut fused = Fused {
        element: group.element(),
        len: group.len,
        row: group.row,
        inputs: accesses,
        instructions: builder.instructions,
        row_result,
        registers: 0,
    };
    assign_registers(&mut fused);
    Some(Step {
        op: Op::Fused(Box::new(fused)),
        inputs: inputs.into(),
        epilogues: SmallVec::new(),
        output: last.output,
        node: last.node,
    })
}

struct Builder<'a> {
    program: &'a Program,
    flow: &'a Flow,
    group: &'a Group,
    inputs: Vec<(ValueId, Access)>,
    /// Each writes to a register with its own number.
    instructions: Vec<Instruction>,
    /// Places of the values of members.
    values: FxHashMap<ValueId, Arg>,
    /// Registers of loaded inputs, by input and width.
    loaded: FxHashMap<(usize, Width), Arg>,
}

impl Builder<'_> {
    /// Makes the first input one that can be overwritten, if there is one.
    fn find_overwritten(&mut self) {
        let (program, group) = (self.program, self.group);
        if group
            .member(group.root)
            .is_none_or(|(_, width)| width == Width::Row)
        {
            return;
        }
        for at in group.members() {
            for &value in &program.steps[at].inputs {
                let outside = self.flow.maker(program, value);
                let outside = outside.is_some_and(|maker| group.member(maker).is_none());
                if outside
                    && program.element(value) == group.element()
                    && program.value(value).len() == group.len
                    && self.access(at, value) == Access::Whole
                    && number(program, self.flow, value).is_none()
                    && dies(program, self.flow, value, group.at())
                {
                    self.inputs.push((program.root(value), Access::Whole));
                    return;
                }
            }
        }
    }

    /// Access of member `at` to `value`, which is computed outside the group.
    fn access(&self, at: usize, value: ValueId) -> Access {
        let shape = self.program.shape(value);
        let (kind, width) = match self.group.member(at) {
            Some(member) => member,
            None => return Access::Whole,
        };
        let result = match kind {
            Kind::Rows(..) => return Access::Whole,
            Kind::Each(_) | Kind::WithNumber(..) => {
                self.program.shape(self.program.steps[at].output)
            }
        };
        match (width, Access::of(shape, result)) {
            (Width::Row, Access::Whole) => Access::Rows,
            (Width::Tile, Access::Broadcast(_))
                if self.group.row.is_some() && rows_of(shape, result) == self.group.row =>
            {
                Access::Rows
            }
            (_, access) => access,
        }
    }

    fn emit(&mut self, function: Function, args: Args, width: Width) -> Arg {
        let number = self.instructions.len();
        self.instructions.push(Instruction {
            function,
            args,
            width,
            target: Target::Register(number),
        });
        Arg::Register(number, width)
    }

    /// Makes the instruction for a result of the group the last one, which no other reads.
    fn place_last(&mut self, value: ValueId, width: Width) -> Option<()> {
        let known = *self.values.get(&self.program.root(value))?;
        let reads = self.instructions.iter().flat_map(|own| &own.args);
        match known {
            Arg::Register(number, own)
                if own == width && !reads.into_iter().any(|own| *own == known) =>
            {
                let mut instruction = self.instructions.remove(number);
                renumber(&mut self.instructions[number..], number);
                instruction.target = Target::Register(self.instructions.len());
                let last = Arg::Register(self.instructions.len(), width);
                self.instructions.push(instruction);
                for arg in self.values.values_mut() {
                    *arg = if *arg == known {
                        last
                    } else {
                        renumbered(*arg, number)
                    };
                }
            }
            _ => {
                self.emit(Function::Same, smallvec![known], width);
            }
        }
        Some(())
    }

    fn member(&mut self, at: usize) {
        let Some((kind, width)) = self.group.member(at) else {
            return;
        };
        let step = &self.program.steps[at];
        let mut args: Args = step
            .inputs
            .iter()
            .map(|&value| self.operand(at, value, width))
            .collect();
        let mut found = match kind {
            Kind::Each(Function::Same) => args[0],
            Kind::Each(function) => self.emit(function, args, width),
            Kind::WithNumber(function, number) => {
                args.push(Arg::Number(number));
                self.emit(function, args, width)
            }
            Kind::Rows(reduction, _) => {
                let squares = match (reduction, args[0]) {
                    (Reduction::Sum | Reduction::Mean, Arg::Register(number, Width::Tile)) => {
                        let made = &self.instructions[number];
                        (made.function == Function::Unary(Unary::Power(2.0)))
                            .then(|| made.args.clone())
                    }
                    _ => None,
                };
                match squares {
                    // The squares are removed afterwards, if they have no other readers.
                    Some(own) => self.emit(Function::ReduceSquares(reduction), own, Width::Row),
                    None => self.emit(Function::Reduce(reduction), args, Width::Row),
                }
            }
        };
        for function in epilogues(step) {
            found = self.emit(Function::Unary(function), smallvec![found], width);
        }
        let output = self.program.root(step.output);
        self.values.insert(output, found);
    }

    /// The argument for `value` in the instruction of member `at`.
    fn operand(&mut self, at: usize, value: ValueId, width: Width) -> Arg {
        let program = self.program;
        let root = program.root(value);
        if let Some(&known) = self.values.get(&root) {
            return known;
        }
        if let Some(number) = number(program, self.flow, value) {
            return Arg::Number(number);
        }
        let access = self.access(at, value);
        let own = (root, access);
        let number = match self.inputs.iter().position(|known| *known == own) {
            Some(number) => number,
            None => {
                self.inputs.push(own);
                self.inputs.len() - 1
            }
        };
        let (_, access) = &self.inputs[number];
        let direct = !matches!(access, Access::Broadcast(_));
        if direct && program.element(root) == self.group.element() {
            return Arg::Input(number);
        }
        // A value with one number for each row is loaded at row width.
        let width = match access {
            Access::Rows => Width::Row,
            Access::Whole => Width::Tile,
            Access::Number | Access::Broadcast(_) => width,
        };
        if let Some(&known) = self.loaded.get(&(number, width)) {
            return known;
        }
        let load = Function::Load {
            input: number,
            levels: matches!(program.steps[at].op, Op::FromLevels(..)),
        };
        let loaded = self.emit(load, Args::new(), width);
        self.loaded.insert((number, width), loaded);
        loaded
    }
}

/// Removes instructions whose result is not read: those that others have replaced. Each instruction writes to a
/// register with its own number; the last `results` compute results.
fn remove_unread(instructions: &mut Vec<Instruction>, results: usize) {
    let mut at = instructions.len() - results;
    while at > 0 {
        at -= 1;
        let is_read = |own: &Instruction| {
            let mut args = own.args.iter();
            args.any(|arg| matches!(*arg, Arg::Register(number, _) if number == at))
        };
        if !instructions.iter().any(is_read) {
            instructions.remove(at);
            renumber(&mut instructions[at..], at);
        }
    }
}

/// Adapts the instructions behind one that was removed from this position.
fn renumber(instructions: &mut [Instruction], removed: usize) {
    for own in instructions {
        if let Target::Register(number) = &mut own.target {
            *number -= 1;
        }
        for arg in &mut own.args {
            *arg = renumbered(*arg, removed);
        }
    }
}

/// The argument, once the instruction at this position was removed.
fn renumbered(arg: Arg, removed: usize) -> Arg {
    match arg {
        Arg::Register(number, width) if number > removed => Arg::Register(number - 1, width),
        other => other,
    }
}

/// Reuses registers, where each instruction had one of its own; the last ones write to results.
fn assign_registers(fused: &mut Fused) {
    let count = fused.instructions.len();
    let mut last_read = vec![0; count];
    for (at, instruction) in fused.instructions.iter().enumerate() {
        for arg in &instruction.args {
            if let Arg::Register(number, _) = *arg {
                last_read[number] = at;
            }
        }
    }
    let mut place = vec![0; count];
    let mut free: Vec<usize> = Vec::new();
    for at in 0..count {
        let result = fused.result_at(at);
        let own = &mut fused.instructions[at];
        // Sums and products are commutative.
        let swaps = matches!(own.function, Function::Binary(Binary::Add | Binary::Mul));
        let dies = |arg: &Arg, width: Width| match *arg {
            Arg::Register(number, own) => own == width && last_read[number] == at,
            Arg::Input(_) | Arg::Number(_) => false,
        };
        if swaps && !dies(&own.args[0], own.width) && dies(&own.args[1], own.width) {
            own.args.swap(0, 1);
        }
        let mut dead: SmallVec<[usize; 4]> = own
            .args
            .iter()
            .filter_map(|arg| match *arg {
                Arg::Register(number, _) if last_read[number] == at => Some(place[number]),
                _ => None,
            })
            .collect();
        dead.sort_unstable();
        dead.dedup();
        let in_place = match own.args.first() {
            Some(first @ &Arg::Register(number, _))
                if own.function.works_in_place()
                    && dies(first, own.width)
                    && !own.args[1..].contains(first) =>
            {
                Some(place[number])
            }
            _ => None,
        };
        for arg in &mut own.args {
            if let Arg::Register(number, _) = arg {
                *number = place[*number];
            }
        }
        if let Some(target) = result {
            own.target = target;
            free.extend(dead);
            continue;
        }
        let register = match in_place {
            Some(register) => {
                dead.retain(|other| *other != register);
                register
            }
            None => free.pop().unwrap_or_else(|| {
                fused.registers += 1;
                fused.registers - 1
            }),
        };
        own.target = Target::Register(register);
        place[at] = register;
        free.extend(dead);
    }
}
