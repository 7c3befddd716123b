//! A plain interpreter of small tensor programs with views and writes: the oracle of the tests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use corsac_ir::{Arg, Graph, Node, NodeId, Op};

/// A tensor of one dimension: a strided window on storage that others may share.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    storage: Rc<RefCell<Vec<i64>>>,
    offset: usize,
    len: usize,
}

impl Tensor {
    pub(crate) fn new(items: Vec<i64>) -> Self {
        Self {
            offset: 0,
            len: items.len(),
            storage: Rc::new(RefCell::new(items)),
        }
    }

    pub(crate) fn items(&self) -> Vec<i64> {
        self.storage.borrow()[self.offset..self.offset + self.len].to_vec()
    }

    pub(crate) fn write(&self, mut f: impl FnMut(usize, i64) -> i64) {
        let mut storage = self.storage.borrow_mut();
        for i in 0..self.len {
            let slot = &mut storage[self.offset + i];
            *slot = f(i, *slot);
        }
    }

    /// A view of `len` elements from `start`, or of fewer if there are no more.
    fn narrow(&self, start: usize, len: usize) -> Self {
        let start = start.min(self.len - 1);
        Self {
            storage: Rc::clone(&self.storage),
            offset: self.offset + start,
            len: len.clamp(1, self.len - start),
        }
    }

    fn map(&self, f: impl Fn(usize, i64) -> i64) -> Self {
        Self::new(
            self.items()
                .into_iter()
                .enumerate()
                .map(|(i, x)| f(i, x))
                .collect(),
        )
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Tensor(Tensor),
    List(Vec<Value>),
}

impl Value {
    /// The first tensor in it.
    fn tensor(&self) -> Tensor {
        match self {
            Self::Tensor(tensor) => tensor.clone(),
            Self::List(items) => items.first().map_or(Tensor::new(vec![0]), Self::tensor),
        }
    }

    fn items(&self) -> Vec<Value> {
        match self {
            Self::Tensor(tensor) => (0..tensor.len)
                .map(|i| Self::Tensor(tensor.narrow(i, 1)))
                .collect(),
            Self::List(items) => items.clone(),
        }
    }

    pub(crate) fn tensors(&self, found: &mut Vec<Tensor>) {
        match self {
            Self::Tensor(tensor) => found.push(tensor.clone()),
            Self::List(items) => items.iter().for_each(|item| item.tensors(found)),
        }
    }
}

/// State that a program can change besides its values.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) attributes: HashMap<String, Tensor>,
    /// State of the random number generator.
    pub(crate) seed: i64,
    /// Tensors that the opaque function has been given, and keeps.
    pub(crate) kept: Vec<Tensor>,
    /// Values that were asserted.
    pub(crate) log: Vec<Vec<i64>>,
}

/// Runs `graph` on `inputs`; returns the value of its output.
pub(crate) fn run(graph: &Graph, inputs: &[Value], world: &mut World) -> Value {
    run_watched(graph, inputs, world, &mut |_, _| {})
}

/// The same; `watch` sees the value of each node when it is computed.
pub(crate) fn run_watched(
    graph: &Graph,
    inputs: &[Value],
    world: &mut World,
    watch: &mut dyn FnMut(NodeId, &Value),
) -> Value {
    let mut values: HashMap<NodeId, Value> = HashMap::new();
    let mut inputs = inputs.iter();
    for id in graph.nodes() {
        let node = graph.node(id);
        let args: Vec<Value> = node.args().iter().map(|a| evaluate(a, &values)).collect();
        let value = match node.op() {
            Op::Placeholder => inputs.next().expect("an input per placeholder").clone(),
            Op::GetAttr => Value::Tensor(world.attributes[node.target_name()].clone()),
            Op::Output => return args[0].clone(),
            Op::CallFunction | Op::CallMethod => {
                let out = node.kwarg("out").map(|out| evaluate(out, &values).tensor());
                let result = call(node, &args, world);
                match out {
                    Some(out) => {
                        let items = result.tensor().items();
                        out.write(|i, _| items[i % items.len()]);
                        Value::Tensor(out)
                    }
                    None => result,
                }
            }
            Op::CallModule => unreachable!("these programs have no modules"),
        };
        watch(id, &value);
        values.insert(id, value);
    }
    Value::List(Vec::new())
}

fn evaluate(arg: &Arg, values: &HashMap<NodeId, Value>) -> Value {
    match arg {
        Arg::Node(node) => values[node].clone(),
        Arg::Int(x) => Value::Tensor(Tensor::new(vec![*x])),
        Arg::Tuple(items) | Arg::List(items) => {
            Value::List(items.iter().map(|item| evaluate(item, values)).collect())
        }
        other => unreachable!("these programs have no such argument: {other:?}"),
    }
}

fn call(node: Node<'_>, args: &[Value], world: &mut World) -> Value {
    let name = node.target_name();
    let this = match &args[0] {
        // A list has no such methods: any result will do, as long as it is the same.
        Value::List(_) if node.op() == Op::CallMethod => Tensor::new(vec![0]),
        value => value.tensor(),
    };
    let other = args.get(1).map_or(Tensor::new(vec![0]), Value::tensor);
    let others = other.items();
    let at = |i: usize| others[i % others.len()];
    let index = others[0].unsigned_abs() as usize;
    let tensor = match name {
        "clone" | "torch.clone" => this.map(|_, x| x),
        "neg" | "torch.neg" => this.map(|_, x| x.wrapping_neg()),
        "torch.add" => this.map(|i, x| x.wrapping_add(at(i))),
        "mul" | "torch.mul" => this.map(|i, x| x.wrapping_mul(at(i))),
        "add_" => {
            this.write(|i, x| x.wrapping_add(at(i)));
            this
        }
        "copy_" => {
            this.write(|i, _| at(i));
            this
        }
        "zero_" => {
            this.write(|_, _| 0);
            this
        }
        "view" | "detach" | "contiguous" => this,
        "narrow" => this.narrow(index % this.len, 2),
        "torch.rand_like" => {
            world.seed += 1;
            this.map(|_, _| world.seed)
        }
        "torch._assert" => {
            world.log.push(this.items());
            Tensor::new(vec![0])
        }
        "torch.cat" => {
            let mut all = Vec::new();
            args[0].tensors(&mut all);
            Tensor::new(all.iter().flat_map(Tensor::items).collect())
        }
        "chunk" => {
            let half = this.len.div_ceil(2);
            return Value::List(vec![
                Value::Tensor(this.narrow(0, half)),
                Value::Tensor(this.narrow(half, this.len)),
            ]);
        }
        "operator.add" => match (&args[0], &args[1]) {
            (Value::List(a), Value::List(b)) => {
                return Value::List(a.iter().chain(b).cloned().collect());
            }
            _ => this.map(|i, x| x.wrapping_add(at(i))),
        },
        "operator.iadd" => {
            this.write(|i, x| x.wrapping_add(at(i)));
            this
        }
        "operator.getitem" => {
            let items = args[0].items();
            return items[index % items.len()].clone();
        }
        "operator.setitem" => {
            let value = args[2].tensor().items();
            this.narrow(index % this.len, 1).write(|_, _| value[0]);
            this
        }
        // Keeps its arguments, and writes to those of earlier calls.
        "mine.keep" => {
            let mut seen = Vec::new();
            args[0].tensors(&mut seen);
            for kept in &world.kept {
                kept.write(|_, x| x.wrapping_add(3));
            }
            world.kept.extend(seen);
            world.kept[world.kept.len() / 2].clone()
        }
        other => unreachable!("these programs do not call {other}"),
    };
    Value::Tensor(tensor)
}
