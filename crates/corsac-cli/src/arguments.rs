//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use corsac_engine::{Model, ModelFile, Precision};

use crate::failure::Failure;

/// Run models in files that `corsac.save` wrote, without Python.
#[derive(Debug, Parser)]
#[command(name = "corsac", version, term_width = 100)]
#[command(
    after_help = "example:\n  corsac run resnet50.safetensors --input image.npy --output scores.npy"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a model on arrays in files
    #[command(
        after_help = "example:\n  corsac run resnet50.safetensors --input image.npy --output scores.npy\n  \
        corsac run add.safetensors --input y=1.npy --input x=2.npy"
    )]
    Run(RunOptions),
    /// Measure how long a model takes
    #[command(after_help = "example:\n  corsac bench resnet50.safetensors --threads 2 --repeat 50")]
    Bench(BenchOptions),
    /// Print the graph of a model
    #[command(after_help = "example:\n  corsac show resnet50.safetensors --format code")]
    Show(ShowOptions),
    /// Count what a model computes, and the bytes that it reads and writes
    #[command(after_help = "example:\n  corsac ops resnet50.safetensors --json")]
    Ops(OpsOptions),
}

/// The model.
#[derive(Args, Debug)]
pub(crate) struct ModelArgument {
    /// The model: a file that `corsac.save` wrote
    #[arg(value_name = "MODEL")]
    pub(crate) path: PathBuf,
}

/// What convolutions and linear layers multiply. The values have no documentation of their own:
/// clap would put every option of the command on lines apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrecisionName {
    F32,
    Bf16,
}

impl ModelArgument {
    pub(crate) fn open(&self) -> Result<ModelFile, Failure> {
        ModelFile::open(&self.path).map_err(Failure::model(&self.path))
    }

    pub(crate) fn load(
        &self,
        precision: PrecisionName,
        threads: Option<usize>,
    ) -> Result<Model, Failure> {
        let file = self.open()?;
        let file = match precision {
            PrecisionName::F32 => Ok(file),
            PrecisionName::Bf16 => file.with_precision(Precision::Bf16),
        };
        let model = file
            .and_then(Model::from_file)
            .map_err(Failure::model(&self.path))?;
        Ok(match threads {
            Some(threads) => model.with_threads(threads),
            None => model,
        })
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=65536) => Ok(number),
        Ok(_) | Err(_) => Err("a number from 1 to 65536 is needed".to_owned()),
    }
}

/// Options of `run`.
#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) model: ModelArgument,
    /// An input: a *.npy file, in the order of the inputs or after a name; once per input
    #[arg(long, value_name = "[NAME=]FILE")]
    pub(crate) input: Vec<String>,
    /// Where a result goes: a *.npy file, in the order of the results or after a name
    #[arg(long, value_name = "[NAME=]FILE")]
    pub(crate) output: Vec<String>,
    /// What convolutions and linear layers multiply; bf16 where the processor has tiles (AMX)
    #[arg(long, value_enum, value_name = "TYPE", default_value = "f32")]
    pub(crate) precision: PrecisionName,
    /// How many threads take part (CORSAC_NUM_THREADS, or as many as there are)
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Print JSON, for programs to read
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchOptions {
    #[command(flatten)]
    pub(crate) model: ModelArgument,
    /// An input: a *.npy file, as for run (made-up numbers)
    #[arg(long, value_name = "[NAME=]FILE")]
    pub(crate) input: Vec<String>,
    /// How many calls are timed, after three that are not
    #[arg(long, value_name = "N", default_value = "20", value_parser = at_least_one)]
    pub(crate) repeat: usize,
    /// What convolutions and linear layers multiply; bf16 where the processor has tiles (AMX)
    #[arg(long, value_enum, value_name = "TYPE", default_value = "f32")]
    pub(crate) precision: PrecisionName,
    /// How many threads take part (CORSAC_NUM_THREADS, or as many as there are)
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Print JSON, for programs to read
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `show`.
#[derive(Args, Debug)]
pub(crate) struct ShowOptions {
    #[command(flatten)]
    pub(crate) model: ModelArgument,
    /// What to print
    #[arg(long, value_enum, default_value = "graph")]
    pub(crate) format: Format,
    /// Print JSON, for programs to read: inputs, results, weights, and the nodes of the graph
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
}

/// Forms of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One line a node, with the types of the values
    Graph,
    /// Opcode, name, target and arguments in columns
    Table,
    /// The function in Python that the graph is
    Code,
    /// The steps that the engine runs
    Program,
    /// The text in the file
    Lossless,
}

/// Options of `ops`.
#[derive(Args, Debug)]
pub(crate) struct OpsOptions {
    #[command(flatten)]
    pub(crate) model: ModelArgument,
    /// Print JSON, for programs to read
    #[arg(long)]
    pub(crate) json: bool,
}
