//! Reads the text notation.
//!
//! ```text
//! model Net
//! module conv = Conv2d(3, 16, 3, padding=1)
//! parameter scale = float32[16, 1, 1] ones
//! buffer steps = int64[2] [0, 1]
//! input x = float32[_, 3, 32, 32]
//! input flag = False
//! graph:
//!     h = torch.relu(conv(x)) * scale
//!     return h.mean((2, 3))
//! ```

use corsac_ir::DType;
use rustc_hash::FxHashSet;

use crate::config::{Config, Initial, Input, ModuleSpec, TensorSpec};
use crate::error::{ConfigError, Position};
use crate::expression::{Expr, ExprKind, Parser};
use crate::literal::Literal;
use crate::policy::Policy;
use crate::program::{Declared, Program};
use crate::token::{Kind, Source, tokens};

type Result<T> = std::result::Result<T, ConfigError>;

/// The word that ends the declarations.
const GRAPH: &str = "graph:";

pub(crate) fn read(text: &str, policy: &Policy) -> Result<Config> {
    let source = Source::file(text);
    let (head, lines) = split(text, &source)?;
    let head_source = Source::file(head);
    let tokens = tokens(&head_source, 0)?;
    let mut reader = Reader {
        parser: Parser::new(&head_source, &tokens),
        config: Config::default(),
        policy,
    };
    reader.declarations()?;
    let config = reader.config;
    assemble(config, policy, &[lines], source.position(text.len()))
}

/// Records the program of `lines`, for the declarations of `config`.
pub(crate) fn assemble(
    mut config: Config,
    policy: &Policy,
    lines: &[Source<'_>],
    end: Position,
) -> Result<Config> {
    let mut paths = FxHashSet::default();
    let declared = (config.modules.iter().map(|m| (&m.path, m.position)))
        .chain(config.tensors.iter().map(|t| (&t.path, t.position)));
    for (path, position) in declared {
        check_path(path, position)?;
        if !paths.insert(path.as_str()) {
            return Err(ConfigError::new(
                position,
                format!("{path} is declared twice"),
            ));
        }
    }
    for (path, position) in (config.tensors.iter()).map(|t| (&t.path, t.position)) {
        let mut prefixes = path.match_indices('.').map(|(at, _)| &path[..at]);
        if let Some(parent) = prefixes.find(|p| config.tensors.iter().any(|t| t.path == *p)) {
            let message = format!("{path} lies inside of {parent}, which is a tensor");
            return Err(ConfigError::new(position, message));
        }
    }
    let modules = config.modules.iter().map(|m| m.path.clone()).collect();
    let tensors = config.tensors.iter().map(|t| t.path.clone()).collect();
    let mut program = Program::new(Declared {
        modules: &modules,
        tensors: &tensors,
        policy,
    });
    for input in &config.inputs {
        program.input(&input.name, input.default.as_ref(), input.position)?;
    }
    for source in lines {
        program.run(source)?;
    }
    (config.graph, config.functions) = program.finish(end)?;
    Ok(config)
}

/// Checks a path: names with dots between them; parts may be numbers.
pub(crate) fn check_path(path: &str, position: Position) -> Result<()> {
    if is_path(path) {
        Ok(())
    } else {
        Err(ConfigError::expected(
            position,
            "a name such as layer1.0.conv",
            format_args!("{path:?}"),
        ))
    }
}

/// Whether [`check_path`] accepts `path`.
pub(crate) fn is_path(path: &str) -> bool {
    let is_name =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    path.split('.').all(is_name) && !path.starts_with(|c: char| c.is_numeric()) && path != "self"
}

/// The declarations, and the lines behind `graph:`.
fn split<'t>(text: &'t str, source: &Source<'t>) -> Result<(&'t str, Source<'t>)> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let word = line.split('#').next().unwrap_or(line).trim();
        if word == GRAPH {
            let from = at + line.len();
            let start = source.position(from);
            let rest = &text[from..];
            return Ok((&text[..at], Source::new(rest, start)));
        }
        at += line.len();
    }
    Err(ConfigError::expected(
        source.position(text.len()),
        "`graph:` and the lines of the graph",
        "the end of the text",
    ))
}

struct Reader<'t> {
    parser: Parser<'t>,
    config: Config,
    policy: &'t Policy,
}

impl Reader<'_> {
    fn declarations(&mut self) -> Result<()> {
        loop {
            let at = self.parser.peek().start;
            let position = self.parser.position(at);
            let (parameter, buffer) = (true, false);
            match &self.parser.peek().kind {
                Kind::End => return Ok(()),
                Kind::Newline => {
                    self.parser.bump();
                    continue;
                }
                Kind::Path(word) => match word.as_str() {
                    "model" => self.model()?,
                    "module" => self.module(position)?,
                    "parameter" => self.tensor(parameter, position)?,
                    "buffer" => self.tensor(buffer, position)?,
                    "input" => self.input(position)?,
                    _ => return Err(self.unknown()),
                },
                _ => return Err(self.unknown()),
            }
            self.parser.end_of_line()?;
        }
    }

    fn unknown(&self) -> ConfigError {
        self.parser
            .expected("`model`, `module`, `parameter`, `buffer`, `input` or `graph:`")
    }

    fn model(&mut self) -> Result<()> {
        self.parser.bump();
        let (name, at) = self.parser.path("the name of the model")?;
        if name.contains('.') || self.config.name.is_some() {
            let position = self.parser.position(at);
            return Err(ConfigError::expected(
                position,
                "one name",
                format_args!("`{name}`"),
            ));
        }
        self.config.name = Some(name);
        Ok(())
    }

    /// `module PATH = CLASS(ARGUMENTS)`
    fn module(&mut self, position: Position) -> Result<()> {
        self.parser.bump();
        let (path, _) = self.parser.path("the name of the module")?;
        self.parser.expect("=")?;
        let (class, at) = self.parser.path("the class of the module")?;
        check_class(&class, self.policy, self.parser.position(at))?;
        self.parser.expect("(")?;
        let (args, kwargs) = self.parser.arguments()?;
        let args: Result<_> = args.iter().map(|arg| self.literal(arg)).collect();
        let kwargs: Result<_> = (kwargs.iter())
            .map(|(key, value)| Ok((key.clone(), self.literal(value)?)))
            .collect();
        self.config.modules.push(ModuleSpec {
            path,
            class,
            args: args?,
            kwargs: kwargs?,
            position,
        });
        Ok(())
    }

    /// `parameter PATH = DTYPE[SHAPE] INITIAL`
    fn tensor(&mut self, parameter: bool, position: Position) -> Result<()> {
        self.parser.bump();
        let (path, _) = self.parser.path("the name of the tensor")?;
        self.parser.expect("=")?;
        let at = self.parser.peek().start;
        let Some((dtype, shape)) = self.tensor_type()? else {
            return Err(self.parser.expected("a type such as float32[3, 4]"));
        };
        let fixed: Option<Vec<u64>> = shape.into_iter().collect();
        let Some(shape) = fixed else {
            let position = self.parser.position(at);
            return Err(ConfigError::expected(
                position,
                "a size for each dimension",
                "`_`",
            ));
        };
        let initial = match &self.parser.peek().kind {
            Kind::Path(word) => {
                let Some(initial) = Initial::named(word) else {
                    return Err(self
                        .parser
                        .expected("`zeros`, `ones`, `normal` or `[elements]`"));
                };
                self.parser.bump();
                initial
            }
            Kind::Symbol("[") => {
                let elements = self.parser.expression()?;
                let Literal::List(elements) = self.literal(&elements)? else {
                    return Err(self.parser.expected("a list of elements"));
                };
                Initial::Elements(elements)
            }
            _ => {
                return Err(self
                    .parser
                    .expected("`zeros`, `ones`, `normal` or `[elements]`"));
            }
        };
        let spec = TensorSpec {
            path,
            parameter,
            dtype,
            shape,
            initial,
            position,
        };
        check_elements(&spec)?;
        self.config.tensors.push(spec);
        Ok(())
    }

    /// `input NAME`, `input NAME = DTYPE[SHAPE]` or `input NAME = DEFAULT`
    fn input(&mut self, position: Position) -> Result<()> {
        self.parser.bump();
        let stars = match self.parser.peek_symbol() {
            Some(stars @ ("*" | "**")) => {
                self.parser.bump();
                stars
            }
            _ => "",
        };
        let (name, at) = self.parser.path("the name of the input")?;
        if name.contains('.') {
            let position = self.parser.position(at);
            return Err(ConfigError::expected(
                position,
                "a name",
                format_args!("`{name}`"),
            ));
        }
        let mut input = Input {
            name: format!("{stars}{name}"),
            example: None,
            default: None,
            position,
        };
        if self.parser.eat("=") {
            input.example = self.tensor_type()?;
            if input.example.is_none() {
                let default = self.parser.expressions()?;
                input.default = Some(self.literal(&default)?);
            }
        }
        self.config.inputs.push(input);
        Ok(())
    }

    /// `float32[1, _, 3]`, if such a type stands here.
    fn tensor_type(&mut self) -> Result<Option<(DType, Vec<Option<u64>>)>> {
        let Kind::Path(word) = &self.parser.peek().kind else {
            return Ok(None);
        };
        let Ok(dtype) = word.parse::<DType>() else {
            return Ok(None);
        };
        self.parser.bump();
        self.parser.expect("[")?;
        let mut shape = Vec::new();
        while !self.parser.eat("]") {
            let size = match &self.parser.peek().kind {
                Kind::Int(size) => u64::try_from(size).ok().map(Some),
                Kind::Path(any) if any == "_" => Some(None),
                _ => None,
            };
            let Some(size) = size else {
                return Err(self.parser.expected("a size, or `_` for any"));
            };
            shape.push(size);
            self.parser.bump();
            if !self.parser.eat(",") && self.parser.peek_symbol() != Some("]") {
                return Err(self.parser.expected("`,` or `]`"));
            }
        }
        Ok(Some((dtype, shape)))
    }

    fn literal(&self, expr: &Expr) -> Result<Literal> {
        literal(expr).map_err(|at| {
            ConfigError::new(
                self.parser.position(at),
                "expected a constant: a number, string, dtype, list, tuple or dictionary",
            )
        })
    }
}

/// Checks that `class` may be constructed.
pub(crate) fn check_class(class: &str, policy: &Policy, position: Position) -> Result<()> {
    if policy.constructs(class) {
        return Ok(());
    }
    Err(ConfigError::new(
        position,
        format!("{class} is neither a module of torch.nn nor allowed by the caller"),
    ))
}

/// Checks that a tensor has as many elements as its shape.
pub(crate) fn check_elements(spec: &TensorSpec) -> Result<()> {
    let count = spec
        .shape
        .iter()
        .try_fold(1_u64, |count, &size| count.checked_mul(size));
    let Some(count) = count.filter(|&count| count <= i64::MAX as u64) else {
        return Err(ConfigError::new(
            spec.position,
            "a tensor of too many elements",
        ));
    };
    match &spec.initial {
        Initial::Elements(elements) if elements.len() as u64 != count => {
            Err(ConfigError::expected(
                spec.position,
                &format!("{count} elements for the shape {:?}", spec.shape),
                elements.len(),
            ))
        }
        _ => Ok(()),
    }
}

/// The value of a constant expression, or the byte where it is none.
fn literal(expr: &Expr) -> std::result::Result<Literal, usize> {
    let items = |items: &[Expr]| {
        items
            .iter()
            .map(literal)
            .collect::<std::result::Result<_, _>>()
    };
    Ok(match &expr.kind {
        ExprKind::Path(path) => match path.as_str() {
            "None" => Literal::None,
            "True" => Literal::Bool(true),
            "False" => Literal::Bool(false),
            "inf" => Literal::Float(f64::INFINITY),
            "nan" => Literal::Float(f64::NAN),
            path => match path.strip_prefix("torch.").map(str::parse) {
                Some(Ok(dtype)) => Literal::DType(dtype),
                _ => return Err(expr.at),
            },
        },
        ExprKind::Prefix("neg", operand) => match literal(operand)? {
            Literal::Float(value) => Literal::Float(-value),
            _ => return Err(expr.at),
        },
        ExprKind::Int(value) => Literal::Int(i64::try_from(value).map_err(|_| expr.at)?),
        ExprKind::Float(value) => Literal::Float(*value),
        ExprKind::Str(value) => Literal::Str(value.clone()),
        ExprKind::Tuple(parts) => Literal::Tuple(items(parts)?),
        ExprKind::List(parts) => Literal::List(items(parts)?),
        ExprKind::Dict(entries) => {
            let mut pairs = Vec::new();
            for (key, value) in entries {
                let ExprKind::Str(key) = &key.kind else {
                    return Err(expr.at);
                };
                pairs.push((key.clone(), literal(value)?));
            }
            Literal::Dict(pairs)
        }
        ExprKind::Bytes(_)
        | ExprKind::Ellipsis
        | ExprKind::Prefix(..)
        | ExprKind::Infix(..)
        | ExprKind::Call(_)
        | ExprKind::Attribute(..)
        | ExprKind::Index(..)
        | ExprKind::Slice(_) => return Err(expr.at),
    })
}
