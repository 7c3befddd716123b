//! Control flow that depends on elements: steps that run the programs of graphs.

use corsac_ops::shape::{Storage, Tensor as TypedTensor, TensorType, Value};
use smallvec::SmallVec;

use super::call::Call;
use super::element::element_of;
use super::table::{Lowering, lowered};
use super::{Lowered, Lowerer, Reason, Writes, lower_with, sizes};
use crate::program::{Control, Element, Flow, Half, Op, Program, Scalar, Source, Step, ValueId};

pub(super) const LOWERINGS: &[Lowering] = &[
    lowered("higher_order.cond", |own, call| own.cond(call)).of_any_type(),
    lowered("higher_order.scan", |own, call| own.scan_rows(call)).of_any_type(),
    lowered("higher_order.while_loop", |own, call| own.while_loop(call)).of_any_type(),
];

/// Operands of a graph: their types there, and the values that are passed when the program runs.
#[derive(Default)]
struct Operands {
    types: Vec<Value>,
    passed: Vec<ValueId>,
}

impl Lowerer<'_, '_> {
    fn cond(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let condition = match call.get("pred") {
            Some(Lowered::Known(Value::Bool(known))) => {
                let number = Scalar::Int(i64::from(*known));
                self.emit_typed(Op::Fill(number), [], Element::Bool, [])
            }
            _ => call.tensor("pred")?,
        };
        let mut operands = Operands::default();
        self.add_operands(call, "operands", &mut operands)?;
        let branches = [
            self.body(call, "true_fn", &operands)?,
            self.body(call, "false_fn", &operands)?,
        ];
        let inputs = std::iter::once(condition).chain(operands.passed);
        self.control(Flow::Cond, branches.into(), inputs.collect())
    }

    fn while_loop(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let mut operands = self.changing(call, "carried_inputs")?;
        let carried = operands.passed.len();
        self.add_operands(call, "additional_inputs", &mut operands)?;
        let bodies = vec![
            self.body(call, "cond_fn", &operands)?,
            self.body(call, "body_fn", &operands)?,
        ];
        self.control(Flow::While { carried }, bodies, operands.passed.into())
    }

    fn scan_rows(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let mut operands = self.changing(call, "init")?;
        let carried = operands.passed.len();
        let mut rows = self.changing(call, "xs")?;
        let length = rows
            .passed
            .first()
            .and_then(|&own| self.program.shape(own).first());
        let &length = length.ok_or("xs has no rows")?;
        for own in &mut rows.types {
            if let Value::Tensor(tensor) = own {
                let row = tensor.shape.iter().skip(1).cloned();
                *own = TensorType::new(tensor.dtype, row).into();
            }
        }
        let scanned = rows.passed.len();
        operands.types.append(&mut rows.types);
        operands.passed.append(&mut rows.passed);
        self.add_operands(call, "additional_inputs", &mut operands)?;
        let flow = Flow::Scan {
            carried,
            scanned,
            length,
        };
        let body = self.body(call, "combine_fn", &operands)?;
        self.control(flow, vec![body], operands.passed.into())
    }

    /// The tensors given for a parameter, which are others in each iteration.
    fn changing(&mut self, call: &Call, param: &str) -> Result<Operands, Reason> {
        let mut operands = Operands::default();
        for item in items(call, param)? {
            let Lowered::Tensor(value) = item else {
                return Err(format!("{param} has items that are no tensors"));
            };
            let value = self.rounded(value);
            operands.types.push(self.type_of(value).into());
            operands.passed.push(value);
        }
        Ok(operands)
    }

    /// Adds the operands given for a parameter. Those that are weights, or known before the program runs, are so in the
    /// graph, too.
    fn add_operands(
        &mut self,
        call: &Call,
        param: &str,
        operands: &mut Operands,
    ) -> Result<(), Reason> {
        for item in items(call, param)? {
            match item {
                Lowered::Known(value) => operands.types.push(value),
                Lowered::Tensor(value) => {
                    let value = self.rounded(value);
                    let mut tensor = TypedTensor::new(self.type_of(value));
                    match self.program.value(value).source {
                        Source::Weight(number) => tensor.storage = Storage::from_index(number),
                        _ => operands.passed.push(value),
                    }
                    operands.types.push(Value::Tensor(tensor));
                }
                Lowered::Items(_) => return Err(format!("{param} has containers in it")),
            }
        }
        Ok(())
    }

    fn type_of(&self, value: ValueId) -> TensorType {
        let sizes = self.program.shape(value).iter();
        let sizes = sizes.map(|&size| i64::try_from(size).unwrap_or(i64::MAX).into());
        TensorType::new(self.dtype(value), sizes)
    }

    /// The program of the graph given for a parameter. Its inputs are the operands that are passed.
    fn body(&self, call: &Call, param: &str, operands: &Operands) -> Result<Program, Reason> {
        let Some(Value::Graph(name)) = call.known(param)? else {
            return Err(format!("{param} is no graph"));
        };
        let in_graph = |error: String| format!("in the graph {name}: {error}");
        let found = (self.types.host()).graph(name, &operands.types, self.types.settings());
        let found = found.ok_or("a graph that is not there")?;
        let (graph, types) = found.map_err(|error| in_graph(error.to_string()))?;
        lower_with(graph, &types, Writes::Nothing).map_err(|error| in_graph(error.to_string()))
    }

    /// Adds a step for the current call.
    fn control(
        &mut self,
        flow: Flow,
        bodies: Vec<Program>,
        inputs: SmallVec<[ValueId; 4]>,
    ) -> Result<Lowered, Reason> {
        let Some(types) = self.types.value(self.node).as_items() else {
            return Err("its result is no tuple".to_owned());
        };
        let mut values = Vec::new();
        let mut results = Vec::new();
        for own in types {
            results.push(match own {
                Value::Tensor(tensor) => {
                    let (element, shape) = (element_of(tensor.dtype)?, sizes(tensor)?);
                    let value = self.program.add_typed(element, shape, Source::Step);
                    self.note_narrow(value, tensor.dtype);
                    if Half::of(tensor.dtype).is_some() {
                        self.note_rounded(value);
                    }
                    values.push(value);
                    Lowered::Tensor(value)
                }
                Value::None => Lowered::Known(Value::None),
                other => return Err(format!("{other} as a result")),
            });
        }
        let (&output, others) = values.split_first().ok_or("it returns no tensors")?;
        self.program.steps.push(Step {
            op: Op::Control(Box::new(Control {
                flow,
                bodies,
                others: others.into(),
                most_iterations: u64::MAX,
            })),
            inputs,
            epilogues: SmallVec::new(),
            output,
            node: self.node,
        });
        Ok(Lowered::Items(results))
    }
}

/// The items given for a parameter; none if it is not given.
fn items(call: &Call, param: &str) -> Result<Vec<Lowered>, Reason> {
    match call.get(param) {
        None => Ok(Vec::new()),
        Some(Lowered::Items(items)) => Ok(items.clone()),
        Some(Lowered::Known(Value::Tuple(items) | Value::List(items))) => {
            Ok(items.iter().cloned().map(Lowered::Known).collect())
        }
        Some(_) => Err(format!("{param} is no tuple")),
    }
}
